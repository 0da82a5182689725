"""Pages to measure the guide on: cached pages by what of them is held out, degraded pages, drawn pages.

samples = page_samples(folder, "test", limit=60)
[EFFECTS["5 degrees"](sample) for sample in samples]
"""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image

from arr_coc_lab.evaluate.guide import Sample
from arr_coc_lab.pictures.labels import Split
from arr_coc_lab.teaching.page import Real
from arr_coc_lab.world import draw_page
from arr_coc_lab.world import photograph as camera
from arr_coc_lab.world.browser.cache import CachedPage, CachedPages
from arr_coc_lab.world.browser.chromium import Box
from arr_coc_lab.world.browser.fonts import held_out
from arr_coc_lab.world.browser.interfaces import TYPE as INTERFACE
from arr_coc_lab.world.browser.page import Inquired, write_page
from arr_coc_lab.world.browser.style import HELD_OUT_MANNERS
from arr_coc_lab.world.browser.types import page_types

DOCUMENT = "document"
"""The type of pages taken from real documentation."""


def page_samples(
    folder: Path, split: str = "test", limit: int | None = None, questions: int | None = None
) -> Iterator[Sample]:
    """Yield the pages of a cache in the order of their seeds, at most `limit`, evenly spaced.

    `questions`: at most so many of a page, of kinds as even as it has them.

    Raises:
        ValueError: there are none.
    """
    pages = CachedPages(folder, split)
    count = len(pages) if limit is None else min(limit, len(pages))
    for i in range(count):
        page = pages[i * len(pages) // count]
        chosen = page.questions if questions is None else _even(page.questions, questions, page.seed)
        yield Sample(f"{page.split}/{page.seed}", page.image, chosen, page.words, _axes(page))


def real_samples(
    folder: Path, split: Split = "test", limit: int | None = None, questions: int | None = None
) -> Iterator[Sample]:
    """Yield the labelled real pictures of a folder that `pictures.fetch` filled; else as `page_samples`."""
    pages = Real(folder, split)
    count = len(pages) if limit is None else min(limit, len(pages))
    for i in range(count):
        number = i * len(pages) // count
        page = pages[number]
        chosen = page.questions if questions is None else _even(page.questions, questions, number)
        yield Sample(pages.pictures[number].file, page.image, chosen, page.words, {})


def _even(questions: Sequence[Inquired], count: int, seed: int) -> tuple[Inquired, ...]:
    """Some questions, one of every kind before a second of any."""
    rng = random.Random(seed)
    ranks: Counter[str] = Counter()
    ranked = []
    for question in rng.sample(questions, len(questions)):
        ranks[question.kind] += 1
        ranked.append((ranks[question.kind], question))
    return tuple(question for _, question in sorted(ranked, key=lambda pair: pair[0])[:count])


def _axes(page: CachedPage) -> dict[str, str]:
    """Return what a page is reported by: its type, area, and what of it is held out."""
    width, height = page.image.size
    cells = -(-width // 32) * -(-height // 32)
    bounds = ((256, "up to 256 cells"), (512, "257-512 cells"), (1024, "513-1024 cells"))
    area = next((name for bound, name in bounds if cells <= bound), "more than 1024 cells")
    axes = {"area": area, "type": page.type}
    if page.type in (DOCUMENT, INTERFACE):
        return axes
    out = {kind.name for kind in page_types("test") if kind.held_out}
    axes["types"] = _split(page.type in out)
    _, sheet, name = write_page(page.seed, page.split)
    style = sheet.style
    if name == page.type and abs(style.width * style.scale - width) < 2:  # else drawn by other code
        axes["fonts"] = _split(held_out(style.body))
        axes["manners"] = _split(style.theme.rpartition("-")[0] in HELD_OUT_MANNERS)
        axes["paper"] = "dark" if style.dark else "light"
    return axes


def _split(out: bool) -> str:
    return "held out" if out else "of training"


def drawn_samples(count: int, size: int = 1024, split: str = "test") -> Iterator[Sample]:
    """Pages of the drawn world; their kinds of questions are its families."""
    for seed in range(count):
        page = draw_page(seed, (size, size), split)
        questions = tuple(Inquired(q.family, q.text, q.answer, q.evidence) for q in page.questions)
        yield Sample(f"drawn/{seed}", page.image, questions)


Move = Callable[[Image.Image, list[Box]], tuple[Image.Image, list[Box]]]


def _moved(move: Move) -> Callable[[Sample], Sample]:
    """Return an effect on samples from one on a picture and boxes."""

    def effect(sample: Sample) -> Sample:
        boxes = [box for question in sample.questions for box in question.evidence]
        image, boxes = move(sample.image, boxes)
        rest = iter(boxes)
        questions = tuple(
            replace(question, evidence=tuple(next(rest) for _ in question.evidence))
            for question in sample.questions
        )
        return replace(sample, image=image, questions=questions)

    return effect


def misspelt(text: str) -> str:
    """Return a text with one wrong letter in every word of more than three letters, always the same ones."""
    rng = random.Random(text)
    words = text.split()
    for i, word in enumerate(words):
        places = [at for at, letter in enumerate(word) if letter.isalpha()]
        if len(places) > 3:
            at = rng.choice(places)
            letter = rng.choice(string.ascii_lowercase.replace(word[at].lower(), ""))
            words[i] = word[:at] + letter + word[at + 1 :]
    return " ".join(words)


def _misspelt(sample: Sample) -> Sample:
    questions = tuple(replace(q, text=misspelt(q.text)) for q in sample.questions)
    return replace(sample, questions=questions)


EFFECTS: dict[str, Callable[[Sample], Sample]] = {
    "clean": lambda sample: sample,
    "JPEG quality 20": _moved(lambda image, boxes: (camera.jpeg(image, 20), boxes)),
    "blur, radius 1 px": _moved(lambda image, boxes: (camera.blur(image, 1), boxes)),
    "2 degrees": _moved(lambda image, boxes: camera.rotate(image, boxes, 2)),
    "5 degrees": _moved(lambda image, boxes: camera.rotate(image, boxes, 5)),
    "perspective, 8 %": _moved(lambda image, boxes: camera.perspective(image, boxes, 0.08)),
    "photographed": _moved(lambda image, boxes: camera.photograph(image, boxes, random.Random(len(boxes)))),
    "0.7 of the size": _moved(lambda image, boxes: camera.resize(image, boxes, 0.7)),
    "one wrong letter a word": _misspelt,
    "cells of 28 px": lambda sample: replace(sample, cell=28),
}
"""Degradations of pages by name; "clean" is none."""
