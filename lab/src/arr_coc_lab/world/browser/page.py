"""Rendered pages: from a seed to a picture with questions and evidence boxes.

    with Chromium() as chromium:
        page = render_page(chromium, seed=7, split="train")
        page.image, page.questions, page.words

The same arguments give the same page where the same fonts are installed. The splits never share a seed; page
types, fonts, words, manners and hues that are held out are of "test" alone.
"""

from __future__ import annotations

import io
import random
from dataclasses import dataclass

from PIL import Image

from arr_coc_lab.world.browser.chromium import Box, Chromium, Shot, Word
from arr_coc_lab.world.browser.fonts import families
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.style import PageStyle, draw_style
from arr_coc_lab.world.browser.types import PageType, page_types
from arr_coc_lab.world.browser.vocabulary import Vocabulary
from arr_coc_lab.world.page import page_seed


@dataclass(frozen=True)
class Inquired:
    """A question about a rendered page.

    Attributes:
        kind: one of `phrases.KINDS`.
        text: the question.
        answer: the answer.
        evidence: boxes in px of all that the answer needs; empty for questions about the whole page and for
            those that nothing answers.
    """

    kind: str
    text: str
    answer: str
    evidence: tuple[Box, ...]


@dataclass(frozen=True)
class RenderedPage:
    """A rendered page."""

    png: bytes  # the picture
    questions: tuple[Inquired, ...]  # those whose evidence is fully in the picture
    words: tuple[Word, ...]  # every printed word with its box
    type: str  # name of the page type; "document" for real documentation
    style: PageStyle | None  # its look; None for a document
    seed: int  # of `render_page`
    split: str  # of `render_page`
    source: str = ""  # package and file of a document
    things: tuple[tuple[str, Box], ...] = ()  # drawn objects by name, each with its box

    @property
    def image(self) -> Image.Image:
        """The picture, RGB."""
        return Image.open(io.BytesIO(self.png)).convert("RGB")


def write_page(seed: int, split: str, name: str | None = None) -> tuple[str, Sheet, str]:
    """Return the HTML of a page, the sheet with its questions, and the name of its type; no browser.

    Args:
        seed: 0 or more.
        split: "train", "validation" or "test".
        name: of the page type; None: drawn by the seed.

    Raises:
        ValueError: an unknown split or type, or a negative seed.
    """
    rng = random.Random(page_seed(seed, split))
    kind = _choose(rng, split, name)
    style = draw_style(rng, split, families(split))
    sheet = Sheet(rng, Vocabulary(rng, split), style)
    body = kind.write(sheet)
    head = f'<head><meta charset="utf-8"><style>{style.css()}</style></head>'
    return f"<!doctype html><html>{head}<body>{body}</body></html>", sheet, kind.name


def render_page(chromium: Chromium, seed: int, split: str = "train", name: str | None = None) -> RenderedPage:
    """Render one page; arguments and errors as in `write_page`."""
    html, sheet, kind = write_page(seed, split, name)
    style = sheet.style
    shot = chromium.render(html, style.width, style.height, style.scale)
    things = tuple((name, box) for name, piece in sheet.things for box in shot.pieces.get(piece.number, ()))
    questions = _questions(sheet, shot)
    return RenderedPage(shot.png, questions, shot.words, kind, style, seed, split, things=things)


def _choose(rng: random.Random, split: str, name: str | None) -> PageType:
    """Return the page type of a name, or one drawn by weight; every other page of "test" is of a held-out
    type.
    """
    types = page_types("test" if name else split)
    if name is not None:
        for kind in types:
            if kind.name == name:
                return kind
        raise ValueError(f"page type {name!r} is unknown; use one of {', '.join(t.name for t in types)}")
    out = [kind for kind in types if kind.held_out]
    if out and rng.random() < 0.5:
        types = tuple(out)
    return rng.choices(types, [kind.weight for kind in types])[0]


def _questions(sheet: Sheet, shot: Shot) -> tuple[Inquired, ...]:
    """Return the questions of a sheet with all their evidence in the picture and no second meaning."""
    kept = []
    for inquiry in sheet.inquiries:
        kind, text, answer, numbers, _ = inquiry
        if all(shot.pieces.get(number) for number in numbers) and not sheet.ambiguous(inquiry):
            boxes = tuple(box for number in numbers for box in shot.pieces[number])
            kept.append(Inquired(kind, text, answer, boxes))
    return tuple(kept)
