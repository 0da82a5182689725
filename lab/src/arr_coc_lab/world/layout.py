"""Layouts: the division of a page into rectangles. Some templates are used in the test split alone."""

from __future__ import annotations

import random
from itertools import pairwise

from arr_coc_lab.world.canvas import Rect

TRAIN_TEMPLATES: tuple[str, ...] = ("bands", "columns", "sidebar")
HELD_OUT_TEMPLATES: tuple[str, ...] = ("mosaic", "pinwheel")

_LEAST = 190  # px, the least width of a block that holds a field
_GAP = 10  # px between blocks


def _cut(rng: random.Random, start: int, end: int, ideal: int) -> list[tuple[int, int]]:
    """Cut [start, end) into unequal pieces of about `ideal` px, with gaps."""
    count = max(1, round((end - start) / ideal))
    weights = [rng.uniform(0.75, 1.35) for _ in range(count)]
    edges, total = [start], 0.0
    for weight in weights:
        total += weight
        edges.append(start + int((end - start) * total / sum(weights)))
    return [(a, b - _GAP) for a, b in pairwise(edges)]


def _bands(rng: random.Random, rect: Rect, ideal: int = 230) -> list[Rect]:
    """Rows about `ideal` px high, each cut into blocks."""
    x0, y0, x1, y1 = rect
    return [
        (a, top, b, bottom)
        for top, bottom in _cut(rng, y0, y1, ideal)
        for a, b in _cut(rng, x0, x1, rng.choice((270, 350, 520)))
    ]


def _columns(rng: random.Random, rect: Rect) -> list[Rect]:
    """Columns, each cut into blocks."""
    x0, y0, x1, y1 = rect
    return [(a, top, b, bottom) for a, b in _cut(rng, x0, x1, 380) for top, bottom in _cut(rng, y0, y1, 210)]


def _sidebar(rng: random.Random, rect: Rect) -> list[Rect]:
    """Return a narrow column on the left, bands beside it."""
    x0, y0, x1, y1 = rect
    if x1 - x0 < 2.2 * _LEAST:
        return _bands(rng, rect)
    edge = x0 + max(_LEAST + _GAP, int((x1 - x0) * rng.uniform(0.28, 0.4)))
    side = [(x0, top, edge - _GAP, bottom) for top, bottom in _cut(rng, y0, y1, 250)]
    return side + _bands(rng, (edge, y0, x1, y1), 260)


def _mosaic(rng: random.Random, rect: Rect) -> list[Rect]:
    """Guillotine cuts at random places, the longer side first."""
    x0, y0, x1, y1 = rect
    w, h = x1 - x0, y1 - y0
    if w >= 2 * _LEAST and w * 0.8 >= h:
        cut = x0 + rng.randint(_LEAST, w - _LEAST)
        return _mosaic(rng, (x0, y0, cut - _GAP, y1)) + _mosaic(rng, (cut, y0, x1, y1))
    if h >= 2 * 130 and (h > 330 or rng.random() < 0.5):
        cut = y0 + rng.randint(130, h - 130)
        return _mosaic(rng, (x0, y0, x1, cut - _GAP)) + _mosaic(rng, (x0, cut, x1, y1))
    return [rect]


def _pinwheel(rng: random.Random, rect: Rect) -> list[Rect]:
    """Four arms around a middle block, each cut as a mosaic."""
    x0, y0, x1, y1 = rect
    w, h = x1 - x0, y1 - y0
    if w < 3 * _LEAST or h < 420:
        return _mosaic(rng, rect)
    a, b = int(w * rng.uniform(0.3, 0.4)), int(h * rng.uniform(0.3, 0.4))
    arms = [
        (x0, y0, x1 - a - _GAP, y0 + b - _GAP),
        (x1 - a, y0, x1, y1 - b - _GAP),
        (x0 + a, y1 - b, x1, y1),
        (x0, y0 + b, x0 + a - _GAP, y1),
    ]
    middle = (x0 + a, y0 + b, x1 - a - _GAP, y1 - b - _GAP)
    return [piece for arm in arms for piece in _mosaic(rng, arm)] + [middle]


_TEMPLATES = {
    "bands": _bands,
    "columns": _columns,
    "sidebar": _sidebar,
    "mosaic": _mosaic,
    "pinwheel": _pinwheel,
}


def divide(rng: random.Random, rect: Rect, template: str) -> list[Rect]:
    """Return the rectangles (px) of a template inside `rect`, without overlap."""
    return _TEMPLATES[template](rng, rect)
