"""Pages of any folder of HTML at a random scroll position, with questions by rule from their DOM.

    with Chromium() as chromium:
        page = render_interface(chromium, seed=7, split="train", folder=Path("interfaces/train"))
        page.source                "gentelella/invoice.html"

Each folder in it counts as one author. Scripts don't run, and a page loads nothing but files of that folder:
no network, no file elsewhere, no link out of it.
"""

from __future__ import annotations

import io
import random
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from arr_coc_lab.world.browser.chromium import Box, Chromium, Word
from arr_coc_lab.world.browser.documents import Picture, draw_look, draw_path, headings, visit
from arr_coc_lab.world.browser.facts import INTERFACE, STRUCTURE, Facts, inquire
from arr_coc_lab.world.browser.page import Inquired, RenderedPage
from arr_coc_lab.world.page import page_seed

TYPE = "interface"
TRIES, SCROLLS = 60, 3
"""Pages tried for a seed, and places in each."""
MIN_WORDS, MIN_ANSWERED = 15, 6
"""A view needs this many words and questions with evidence."""
MANY = 25
"""Pages from which on an author is drawn as often as any other."""
SMALLEST, LARGEST = 1_500, 600_000
"""Bytes of a page."""
FAINT = 4.0
"""Standard deviation of the grey values (of 255) below which a box is empty."""
BORROWED = frozenset(("node_modules", "bower_components"))
"""Folders of others' packages within a package."""
PLAIN = 0.5
"""Chance that a page keeps its own style; else some of it is changed, as for documents."""


@lru_cache(maxsize=8)
def authors(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Return the HTML pages of a folder by the folder in it that they are in.

    Raises:
        ValueError: there are none, or there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is no folder: name one with .html files")
    pages: dict[str, list[Path]] = defaultdict(list)
    whole = folder.resolve()
    for path in sorted(filter(Path.is_file, folder.rglob("*.html"))):
        if not path.resolve().is_relative_to(whole):  # a link to somewhere else
            continue
        parts = path.relative_to(folder).parts
        if BORROWED.isdisjoint(parts) and SMALLEST <= path.stat().st_size <= LARGEST:
            pages[parts[0] if len(parts) > 1 else ""].append(path)
    if not pages:
        raise ValueError(
            f"{str(folder)!r} has no .html file of {SMALLEST:,} to {LARGEST:,} bytes: name a folder of pages"
        )
    return {author: tuple(paths) for author, paths in pages.items()}


def has_ink(grey: np.ndarray, box: Box) -> bool:
    """Return whether a box of a grey picture [H, W] in [0, 255] shows anything.

    White print on a picture that was not loaded is in the DOM, but invisible.
    """
    x0, y0, x1, y1 = (round(corner) for corner in box)
    part = grey[max(y0, 0) : y1 + 1, max(x0, 0) : x1 + 1]
    return part.size > 0 and float(part.std()) >= FAINT


def render_interface(chromium: Chromium, seed: int, split: str, folder: Path) -> RenderedPage:
    """Render a part of a page of a folder.

    Args:
        chromium: an open browser.
        seed: 0 or more.
        split: "train", "validation" or "test"; give each a folder of its own.
        folder: of HTML files, each author in a folder in it.

    Raises:
        ValueError: an unknown split, a negative seed, or a folder without pages.
        RuntimeError: none of the pages that were tried has enough to ask.
    """
    rng, shelf = random.Random(f"interface {page_seed(seed, split)}"), authors(folder)
    for _ in range(TRIES):
        _, path, other = draw_path(rng, shelf, MANY)
        look = draw_look(rng, split)
        if rng.random() < PLAIN:
            look = look._replace(css="")
        source = path.relative_to(folder).as_posix()

        def take(
            facts: Facts, picture: Picture, other: Path = other, source: str = source
        ) -> RenderedPage | None:
            if len(facts.words) < MIN_WORDS:
                return None
            questions = inquire(rng, facts, headings(other), INTERFACE)
            if not _enough(facts.words, questions):
                return None
            png = picture()
            grey = np.asarray(Image.open(io.BytesIO(png)).convert("L"), dtype=np.float32)
            questions = tuple(q for q in questions if all(has_ink(grey, box) for box in q.evidence))
            words = tuple(word for word in facts.words if has_ink(grey, word.box))
            if not _enough(words, questions):
                return None
            return RenderedPage(png, questions, words, TYPE, None, seed, split, source)

        page = visit(chromium, rng, path, look, folder, SCROLLS, take, interface=True)
        if page is not None:
            return page
    raise RuntimeError(f"no view of the pages in {str(folder)!r} has enough to ask, in {TRIES} tries")


def _enough(words: Sequence[Word], questions: Sequence[Inquired]) -> bool:
    """Return whether a view with these words and questions is taken."""
    answered = [question.kind for question in questions if question.evidence]
    structured = any(kind in STRUCTURE for kind in answered)
    return structured and len(words) >= MIN_WORDS and len(answered) >= MIN_ANSWERED
