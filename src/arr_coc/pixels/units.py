"""Units: the facts of a page as boxes, ranked by how much a question needs them.

    page = find_page(image)
    ranked_units(page, allocation)      PageUnit, best first: a row with its label, a control with its caption
    unit_evidence(image, allocation)    the same as boxes of evidence of an answer

A fact is rarely one line of print: a value stands beside its label, under the head of its column, or a switch
beside its caption. A unit is such a group of whole lines, found around each line that the question needs. Its
box ends where print ends, so it cuts no line.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from arr_coc.choose.allocation import Allocation, EvidenceBox
from arr_coc.choose.boxes import Box
from arr_coc.pixels.lines import PixelBox
from arr_coc.pixels.page import PrintedPage, find_page
from arr_coc.pixels.regions import ROW_SHARE, in_reading_order, merged
from arr_coc.video.opening import Visual

MAX_UNITS = 10  # of a question
MAX_SEEDS = 40  # lines of the highest relevance around which units are looked for
ROW_MATE = 0.1  # share of its seed's relevance that another line of the row needs to belong to the unit
ASKED = 0.5  # share of the highest relevance from which the head of a column says that its cells are meant
STACKED = 0.5  # the same of a line that stands above or below
NEAR = 1.2  # heights of a line, up to which one below is near
ALONE = 0.6  # share of a unit's score that its seed has alone
CAPTION = 0.9  # share of its caption's relevance that a control has
LINKED = 1.5  # times as wide as two parts of one row, up to which one part around them is better
ALIKE = 1.6  # times as high, up to which two parts side by side are strips of one row
GRAZED = 0.25  # of a line's height, up to which a box may reach into it without cutting it
MARGIN = 3  # px around a part of a page
SAME = 1.0  # px by which a box may reach out of another and still be inside


class PageUnit(NamedTuple):
    """A group of whole lines and a control that say one thing together.

    Attributes:
        box: (x0, y0, x1, y1) in px of the picture, around all of it but the header.
        score: the relevance of its best line or control, in [0, 1].
        lines: indices of its lines of the page, from the left and from the top.
        control: what is to be clicked, if the unit has a control; it lies in the box.
        header: index of the line at the head of the column that is asked for; -1 without one.
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


def line_scores(page: PrintedPage, allocation: Allocation) -> NDArray[np.float64]:
    """Return the relevance in [0, 1] of each line of a page by an allocation's kept cells, [L]."""
    return relevance_at(_kept_relevance(allocation), page.boxes, page.size)


def _kept_relevance(allocation: Allocation) -> NDArray[np.float64]:
    return (allocation.balanced[0] * allocation.mask()[0]).double().numpy()


def ranked_units(page: PrintedPage, allocation: Allocation, most: int = MAX_UNITS) -> tuple[PageUnit, ...]:
    """Return at most `most` units of a page by the relevance of an allocation's kept cells, best first.

    No unit lies in the box of a better one. Things without print, as on a photograph, are the boxes of cells
    (`Allocation.evidence`).
    """
    relevance, scores = _kept_relevance(allocation), line_scores(page, allocation)
    units = [*_of_lines(page, scores), *_of_controls(page, scores, relevance)]
    cells = allocation.evidence(page.size)
    units += [PageUnit(one.box, one.score) for one in cells if not _prints(one.box, page)]
    if not any(unit.score > 0 for unit in units):
        # The kept cells only graze lines, whose middles lie in other rows of cells.
        units = [PageUnit(one.box, one.score) for one in cells]
    units.sort(key=lambda unit: -unit.score)
    kept: list[PageUnit] = []
    for unit in units:
        if unit.score <= 0 or len(kept) == most:
            break
        grown = unit._replace(box=whole_lines(unit.box, page.boxes))  # a lower line stands between two others
        if not any(_holds(other.box, grown.box) for other in kept):
            kept.append(grown)
    return tuple(kept)


def unit_evidence(
    visual: Visual, allocation: Allocation, page: PrintedPage | None = None
) -> tuple[EvidenceBox, ...]:
    """Return the units of a picture that its kept cells show, best first; none where no cell stands out.

    Those of a clip, and of a question that names nothing, are boxes of cells. `page`: the picture's, if it is
    there already.
    """
    cells = allocation.evidence(visual.size)
    names_nothing = bool(allocation.weights[1] > allocation.weights[2])  # saliency counts more than coupling
    if not cells or not isinstance(visual, Image.Image) or names_nothing:
        return cells
    kept = allocation.boxes(visual.size).numpy()
    middles = (kept[:, :2] + kept[:, 2:]) / 2
    boxes = []
    for unit in ranked_units(page or find_page(visual), allocation):
        inside = np.all((middles >= unit.box[:2]) & (middles < unit.box[2:]), axis=1)
        boxes.append(EvidenceBox(unit.box, unit.score, max(1, int(inside.sum()))))
    return tuple(boxes)


def _of_lines(page: PrintedPage, scores: NDArray[np.float64]) -> Iterator[PageUnit]:
    """Yield a unit around each of the most relevant lines, and the line alone."""
    row_of = {i: row for row in page.rows for i in row}
    controls = {control.line: control for control in page.controls}
    likely = scores >= ASKED * scores.max(initial=0.0)
    under_heads = {i for i, head in enumerate(page.headers) if head >= 0 and likely[head]}
    for seed in np.argsort(-scores, kind="stable")[:MAX_SEEDS].tolist():
        least = ROW_MATE * scores[seed]
        mates = [i for i in row_of[seed] if i == seed or i in under_heads or scores[i] >= least]
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
    own = relevance_at(relevance, boxes, page.size)
    captions = np.array([scores[one.line] if one.line >= 0 else 0.0 for one in page.controls])
    best = np.maximum(own, CAPTION * captions)
    for number in np.argsort(-best, kind="stable")[:MAX_SEEDS].tolist():
        control, score = page.controls[number], float(best[number])
        named = control.line >= 0
        caption = [page.lines[control.line]] if named else []
        lines = (control.line,) if named else ()
        yield PageUnit(around([control.box, *caption]), score, lines, around([control.box]))


def unit_pieces(page: PrintedPage, unit: PageUnit) -> tuple[PixelBox, ...]:
    """Return the boxes of a unit's lines and control; of one without print its own."""
    pieces = [around([page.lines[i]]) for i in unit.lines]
    return tuple(pieces if unit.control is None else [*pieces, unit.control]) or (unit.box,)


def whole_lines(box: PixelBox, lines: NDArray[np.float64]) -> PixelBox:
    """Grow a box until it cuts no line [L, 4]; one that it only grazes may stay outside."""
    if not len(lines):
        return box
    at = np.array(box, dtype=np.float64)
    least = GRAZED * (lines[:, 3] - lines[:, 1])
    while True:
        across = np.minimum(lines[:, 2], at[2]) - np.maximum(lines[:, 0], at[0])
        down = np.minimum(lines[:, 3], at[3]) - np.maximum(lines[:, 1], at[1])
        cut = lines[(across > SAME) & (down > least)]
        if not len(cut):
            return box
        grown = np.concatenate((np.minimum(at[:2], cut[:, :2].min(0)), np.maximum(at[2:], cut[:, 2:].max(0))))
        if (grown == at).all():
            return around([(float(at[0]), float(at[1]), float(at[2]), float(at[3]))])
        at = grown


def unit_regions(boxes: Sequence[PixelBox], page: PrintedPage, frame: float, most: int) -> list[PixelBox]:
    """Return the parts of a page, in reading order, that show some boxes of units and cut no line.

    `frame` and `most` are as in `merged`. Parts that hold lines of one row have the same top and bottom.
    Around them is a margin as far as there is no other print.
    """
    lines = page.boxes
    parts = list(boxes)
    while True:  # parts only grow and unite, so this ends
        joined = _linked(_levelled([whole_lines(box, lines) for box in merged(parts, frame, most)], page))
        if joined == parts:
            break
        parts = joined
    return in_reading_order(with_room(parts, lines, page.size, [(MARGIN, MARGIN)] * len(parts)))


def with_room(
    parts: Sequence[PixelBox],
    lines: NDArray[np.float64],
    size: tuple[int, int],
    margins: Sequence[tuple[int, int]],
) -> list[PixelBox]:
    """Widen each part by a margin (across, down) in px, less where other print begins.

    Parts that had the same top and bottom still have.
    """
    wide = [_with_margin(box, lines, size, margin) for box, margin in zip(parts, margins, strict=True)]
    rows: dict[tuple[int, int], list[PixelBox]] = defaultdict(list)
    for part, box in zip(parts, wide, strict=True):
        rows[part[1], part[3]].append(box)
    levels = {key: (max(b[1] for b in own), min(b[3] for b in own)) for key, own in rows.items()}
    return [
        (box[0], levels[part[1], part[3]][0], box[2], levels[part[1], part[3]][1])
        for part, box in zip(parts, wide, strict=True)
    ]


def _levelled(parts: Sequence[PixelBox], page: PrintedPage) -> list[PixelBox]:
    """Give parts that hold lines of one row, or strips side by side, the same top and bottom."""
    levelled = list(parts)
    if len(parts) < 2:
        return levelled
    sides = np.array(parts, dtype=np.float64)
    middles = (page.boxes[:, :2] + page.boxes[:, 2:]) / 2
    inside = np.all((sides[:, None, :2] <= middles) & (middles <= sides[:, None, 2:]), axis=-1)
    held = np.zeros((len(parts), len(page.rows)), dtype=np.int64)
    for number, row in enumerate(page.rows):
        held[:, number] = np.any(inside[:, list(row)], axis=1)
    shared = np.minimum(sides[:, None, 3], sides[:, 3]) - np.maximum(sides[:, None, 1], sides[:, 1])
    height = sides[:, 3] - sides[:, 1]
    low, high = np.minimum(height[:, None], height), np.maximum(height[:, None], height)
    strips = (shared >= ROW_SHARE * low) & (high <= ALIKE * low)
    for i, j in np.argwhere(np.triu((held @ held.T > 0) | strips, 1)).tolist():
        top, bottom = min(levelled[i][1], levelled[j][1]), max(levelled[i][3], levelled[j][3])
        for k in (i, j):
            levelled[k] = (levelled[k][0], top, levelled[k][2], bottom)
    return levelled


def _linked(parts: Sequence[PixelBox]) -> list[PixelBox]:
    """Merge neighbours with the same top and bottom if that widens them by no more than LINKED together."""
    linked: list[PixelBox] = []
    for box in sorted(parts, key=lambda box: (box[1], box[3], box[0])):
        last = linked[-1] if linked else None
        if last is not None and last[1::2] == box[1::2]:
            widths = last[2] - last[0] + box[2] - box[0]
            if max(last[2], box[2]) - last[0] <= LINKED * widths:
                linked[-1] = around([last, box])
                continue
        linked.append(box)
    return linked


def _with_margin(
    box: PixelBox, lines: NDArray[np.float64], size: tuple[int, int], margin: tuple[int, int]
) -> PixelBox:
    sides = [max(0, box[0] - margin[0]), max(0, box[1] - margin[1])]
    sides += [min(size[0], box[2] + margin[0]), min(size[1], box[3] + margin[1])]
    beside = (lines[:, :2] < sides[2:]).all(1) & (lines[:, 2:] > sides[:2]).all(1)
    for axis in (1, 0):  # lines above and below first: a corner between them goes to neither
        for line in lines[beside].tolist():
            if any(line[k] >= sides[k + 2] or line[k + 2] <= sides[k] for k in (0, 1)):
                continue
            if line[axis + 2] <= box[axis] + SAME:
                sides[axis] = max(sides[axis], min(box[axis], math.ceil(line[axis + 2])))
            elif line[axis] >= box[axis + 2] - SAME:
                sides[axis + 2] = min(sides[axis + 2], max(box[axis + 2], math.floor(line[axis])))
    return sides[0], sides[1], sides[2], sides[3]


def around(boxes: Sequence[Box]) -> PixelBox:
    """Return the smallest box of whole px around some boxes, at least one."""
    x0, y0 = (math.floor(min(box[k] for box in boxes)) for k in (0, 1))
    x1, y1 = (math.ceil(max(box[k] for box in boxes)) for k in (2, 3))
    return x0, y0, x1, y1


def _prints(box: PixelBox, page: PrintedPage) -> bool:
    """Return whether a line of print reaches into a box."""
    return bool(np.any((page.boxes[:, :2] < box[2:]).all(1) & (page.boxes[:, 2:] > box[:2]).all(1)))


def _holds(outer: PixelBox, inner: PixelBox) -> bool:
    near = all(outer[k] <= inner[k] + SAME for k in (0, 1))
    return near and all(outer[k] >= inner[k] - SAME for k in (2, 3))
