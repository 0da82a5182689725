"""Units: the facts of a page as boxes, ranked by how much a question needs them.

    page = find_page(image)
    ranked_units(page, allocation)      PageUnit, best first: a row with its label, a control with its caption

A fact is rarely one line of print: a value stands beside its label, under the head of its column, or a switch
beside its caption. A unit is such a group of whole lines, found around each line that the question needs. Its
box ends where print ends, so it cuts no line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.boxes import Box
from arr_coc.pixels.lines import PixelBox
from arr_coc.pixels.page import PrintedPage

MAX_UNITS = 10  # of a question
MAX_SEEDS = 40  # lines of the highest relevance around which units are looked for
ROW_MATE = 0.1  # share of its seed's relevance that another line of the row needs to belong to the unit
STACKED = 0.5  # the same of a line that stands above or below
NEAR = 1.2  # heights of a line, up to which one below is near
ALONE = 0.6  # share of a unit's score that its seed has alone
CAPTION = 0.9  # share of its caption's relevance that a control has
SAME = 1.0  # px by which a box may reach out of another and still be inside


class PageUnit(NamedTuple):
    """A group of whole lines and a control that say one thing together.

    Attributes:
        box: (x0, y0, x1, y1) in px of the picture, around all of it but the header.
        score: the relevance of its best line or control, in [0, 1]; a control's is a little below its caption's.
        lines: indices of its lines of the page, from the left and from the top.
        control: what is to be clicked, if the unit has a control; it lies in the box.
        header: index of the line at the head of the column of its most relevant line but the first; -1 without.
    """

    box: PixelBox
    score: float
    lines: tuple[int, ...] = ()
    control: PixelBox | None = None
    header: int = -1


def relevance_at(
    relevance: NDArray[np.floating], boxes: NDArray[np.float64], size: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the highest relevance [H, W] along the middle of each box [L, 4] of a picture of `size`, [L]."""
    rows, columns = relevance.shape
    y = np.clip(((boxes[:, 1] + boxes[:, 3]) / 2 * rows / size[1]).astype(int), 0, rows - 1)
    x0 = np.clip((boxes[:, 0] * columns / size[0]).astype(int), 0, columns - 1)
    x1 = np.clip((np.maximum(boxes[:, 0], boxes[:, 2] - 1) * columns / size[0]).astype(int), x0, columns - 1)
    best = [float(relevance[row, a : b + 1].max()) for row, a, b in zip(y, x0, x1, strict=True)]
    return np.array(best, dtype=np.float64)


def ranked_units(page: PrintedPage, allocation: Allocation, most: int = MAX_UNITS) -> tuple[PageUnit, ...]:
    """Return at most `most` units of a page by the relevance of an allocation's kept cells, best first.

    No unit lies in the box of a better one. Things without print, as on a photograph, are the boxes of cells
    (`Allocation.evidence`).
    """
    relevance = (allocation.balanced[0] * allocation.mask()[0]).double().numpy()
    scores = relevance_at(relevance, page.boxes, page.size)
    found = [*_of_lines(page, scores), *_of_controls(page, scores, relevance)]
    middles = (page.boxes[:, :2] + page.boxes[:, 2:]) / 2
    for one in allocation.evidence(page.size):
        printed = np.all((middles >= one.box[:2]) & (middles <= one.box[2:]), axis=1)
        if not printed.any():
            found.append(PageUnit(one.box, one.score))
    found.sort(key=lambda unit: -unit.score)
    kept: list[PageUnit] = []
    for unit in found:
        if unit.score > 0 and not any(_holds(other.box, unit.box) for other in kept):
            kept.append(unit)
            if len(kept) == most:
                break
    return tuple(kept)


def _of_lines(page: PrintedPage, scores: NDArray[np.float64]) -> Iterator[PageUnit]:
    """Yield a unit around each of the most relevant lines, and the line alone."""
    row_of = {i: row for row in page.rows for i in row}
    controls = {control.line: control for control in page.controls}
    for seed in np.argsort(-scores, kind="stable")[:MAX_SEEDS].tolist():
        mates = [i for i in row_of[seed] if i == seed or scores[i] >= ROW_MATE * scores[seed]]
        lines = {*mates, *_stacked(page.boxes, scores, seed)}
        ordered = sorted(lines, key=lambda i: (page.lines[i][1], page.lines[i][0]))
        named = [controls[i] for i in ordered if i in controls]
        clicked = max(named, key=lambda control: scores[control.line], default=None)
        boxes = [page.lines[i] for i in ordered] + [control.box for control in named]
        yield PageUnit(
            around(boxes), float(scores[seed]), tuple(ordered),
            None if clicked is None else around([clicked.box]), _header(page, scores, mates),
        )  # fmt: skip
        alone = ALONE if len(boxes) > 1 else 1.0
        yield PageUnit(around([page.lines[seed]]), alone * float(scores[seed]), (seed,))


def _stacked(boxes: NDArray[np.float64], scores: NDArray[np.float64], seed: int) -> list[int]:
    """Return the lines just above and below a line, set flush with it or centred, of a like relevance."""
    x0, y0, x1, y1 = boxes[seed]
    height = y1 - y0
    gap = np.maximum(boxes[:, 1] - y1, y0 - boxes[:, 3])
    near = (gap <= NEAR * np.maximum(height, boxes[:, 3] - boxes[:, 1])) & (gap > -0.3 * height)
    over = (boxes[:, 0] < x1) & (boxes[:, 2] > x0)
    flush = np.abs(boxes[:, 0] - x0) <= height
    centred = np.abs(boxes[:, 0] + boxes[:, 2] - x0 - x1) <= 2 * height
    there = near & over & (flush | centred) & (scores >= STACKED * scores[seed])
    there[seed] = False
    return np.flatnonzero(there).tolist()


def _header(page: PrintedPage, scores: NDArray[np.float64], row: Sequence[int]) -> int:
    """Return the head of the column of the most relevant line of a row that is not the row's name."""
    heads = [(scores[i] + scores[page.headers[i]], page.headers[i]) for i in row[1:] if page.headers[i] >= 0]
    return max(heads, default=(0.0, -1))[1]


def _of_controls(
    page: PrintedPage, scores: NDArray[np.float64], relevance: NDArray[np.floating]
) -> Iterator[PageUnit]:
    """Yield each control with the line that names it."""
    boxes = np.array([control.box for control in page.controls], dtype=np.float64).reshape(-1, 4)
    for control, own in zip(page.controls, relevance_at(relevance, boxes, page.size).tolist(), strict=True):
        named = control.line >= 0
        score = max(own, CAPTION * float(scores[control.line])) if named else own
        caption = [page.lines[control.line]] if named else []
        lines = (control.line,) if named else ()
        yield PageUnit(around([control.box, *caption]), score, lines, around([control.box]))


def around(boxes: Sequence[Box]) -> PixelBox:
    """Return the smallest box of whole px around some boxes, at least one."""
    x0, y0 = (math.floor(min(box[k] for box in boxes)) for k in (0, 1))
    x1, y1 = (math.ceil(max(box[k] for box in boxes)) for k in (2, 3))
    return x0, y0, x1, y1


def _holds(outer: PixelBox, inner: PixelBox) -> bool:
    near = all(outer[k] <= inner[k] + SAME for k in (0, 1))
    return near and all(outer[k] >= inner[k] - SAME for k in (2, 3))
