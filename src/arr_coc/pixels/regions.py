"""Turn kept cells into regions: the parts of a picture that are cut out.

cells (K boxes) -> runs of cells in a row -> merged where one frame is cheaper than two
                -> grown to whole lines of print and by a margin
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # who merges boxes needs no torch
    from arr_coc.choose.allocation import Allocation
    from arr_coc.pixels.lines import PixelBox, PrintInk

MOSTLY, NEAR = 0.5, 4.0  # share of a line of print, and heights of it to its end, by which all of it is taken
ROW_SHARE = 0.5  # of the lower of two regions' heights that they share if they stand in one row


def cell_boxes(allocation: Allocation, size: tuple[int, int]) -> list[PixelBox]:
    """Return boxes of kept cells, side by side joined, in a picture of `size` = (width, height)."""
    return joined_in_rows(all_boxes(allocation, size), size)


def all_boxes(allocation: Allocation, size: tuple[int, int]) -> NDArray[np.int64]:
    """Return boxes of kept cells [K, 4] in a picture of `size` = (width, height) px, in raster order."""
    return allocation.boxes(size).numpy().astype(np.int64)


def joined_in_rows(boxes: NDArray[np.int64], size: tuple[int, int]) -> list[PixelBox]:
    """Join boxes of cells [K, 4], in raster order, that lie side by side.

    If a picture has fewer px than cells, a cell without any gets the box of the next px.
    """
    if not len(boxes):
        return []
    x0, y0 = np.minimum(boxes[:, 0], size[0] - 1), np.minimum(boxes[:, 1], size[1] - 1)
    x1, y1 = np.maximum(boxes[:, 2], x0 + 1), np.maximum(boxes[:, 3], y0 + 1)
    apart = (y0[1:] != y0[:-1]) | (y1[1:] != y1[:-1]) | (x0[1:] != x1[:-1])
    first = np.flatnonzero(np.concatenate(([True], apart)))
    last = np.append(first[1:] - 1, len(boxes) - 1)
    return list(zip(*(side.tolist() for side in (x0[first], y0[first], x1[last], y1[first])), strict=True))


def merged(boxes: Sequence[PixelBox], frame: float, most: int) -> list[PixelBox]:
    """Merge boxes while one costs no more than two, and further until there are at most `most`.

    The cost of a box is its area with `frame` px added to each side, for what rounding up and a gap take.
    """
    count = len(boxes)
    if count < 2:
        return list(boxes)
    at = np.array(boxes, dtype=np.float64)
    cost = _cost(at, frame)
    saving = np.full((count, count), -np.inf)
    for i in range(count):
        saving[i] = cost[i] + cost - _cost(_unions(at[i], at), frame)
        saving[i, i] = -np.inf
    alive = np.ones(count, dtype=bool)
    while alive.sum() > 1:
        i, j = divmod(int(saving.argmax()), count)
        if saving[i, j] < 0 and alive.sum() <= most:
            break
        at[i] = _unions(at[i], at[j : j + 1])[0]
        alive[j] = False
        cost[i] = _cost(at[i : i + 1], frame)[0]
        saving[j, :] = saving[:, j] = -np.inf
        fresh = np.where(alive, cost[i] + cost - _cost(_unions(at[i], at), frame), -np.inf)
        fresh[i] = -np.inf
        saving[i, :] = saving[:, i] = fresh
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in at[alive].tolist()]


def _unions(one: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate((np.minimum(one[:2], others[:, :2]), np.maximum(one[2:], others[:, 2:])), 1)


def _cost(boxes: NDArray[np.float64], frame: float) -> NDArray[np.float64]:
    return (boxes[:, 2] - boxes[:, 0] + frame) * (boxes[:, 3] - boxes[:, 1] + frame)


def with_lines(
    box: PixelBox, lines: NDArray[np.float64], size: tuple[int, int], margin: tuple[int, int]
) -> PixelBox:
    """Grow a region by a margin (across, down) in px, without cutting a line of print [L, 4] lengthwise.

    A line that the box touches is taken in its whole height; one that only the margin touches is left out.
    """
    width, height = size
    x0, x1 = max(0, box[0] - margin[0]), min(width, box[2] + margin[0])
    beside = lines[(lines[:, 0] < x1) & (lines[:, 2] > x0)] if len(lines) else lines
    tops, bottoms = np.floor(beside[:, 1]), np.ceil(beside[:, 3])

    def cut(y: float) -> NDArray[np.bool_]:
        return (tops < y) & (bottoms > y)

    y0, y1 = float(box[1]), float(box[3])
    while True:  # the box only grows, at most to the whole picture
        through = cut(y0), cut(y1)
        if not through[0].any() and not through[1].any():
            break
        y0 = min(y0, *tops[through[0]]) if through[0].any() else y0
        y1 = max(y1, *bottoms[through[1]]) if through[1].any() else y1
    y0, y1 = max(0.0, y0), min(float(height), y1)
    above, below = max(0.0, y0 - margin[1]), min(float(height), y1 + margin[1])
    while above < y0 and cut(above).any():
        above = float(bottoms[cut(above)].max())
    while below > y1 and cut(below).any():
        below = float(tops[cut(below)].min())
    return int(x0), int(min(above, y0)), int(x1), math.ceil(max(below, y1))


def to_line_ends(box: PixelBox, lines: NDArray[np.float64], size: tuple[int, int]) -> PixelBox:
    """Widen a region to the ends of the lines of print [L, 4] in it that go on beyond its sides.

    A line counts if its middle lies in the box. The region takes its end if half of the line is inside, or if
    the end is at most NEAR heights of the line away.
    """
    middle = (lines[:, 1] + lines[:, 3]) / 2
    inside = lines[(middle > box[1]) & (middle < box[3]) & (lines[:, 0] < box[2]) & (lines[:, 2] > box[0])]
    if not len(inside):
        return box
    reach = NEAR * (inside[:, 3] - inside[:, 1])
    shared = np.minimum(inside[:, 2], box[2]) - np.maximum(inside[:, 0], box[0])
    mostly = shared >= MOSTLY * (inside[:, 2] - inside[:, 0])
    left = inside[:, 0][mostly | (box[0] - inside[:, 0] <= reach)]
    right = inside[:, 2][mostly | (inside[:, 2] - box[2] <= reach)]
    x0 = min(box[0], math.floor(left.min())) if len(left) else box[0]
    x1 = max(box[2], math.ceil(right.max())) if len(right) else box[2]
    return max(0, x0), box[1], min(size[0], x1), box[3]


def regions(
    boxes: Sequence[PixelBox],
    lines: NDArray[np.float64],
    size: tuple[int, int],
    margin: tuple[int, int],
    frame: float,
    most: int,
    ink: PrintInk | None = None,
) -> list[PixelBox]:
    """Return regions that hold all of some boxes and whole lines of print [L, 4], in reading order.

    `frame` and `most` are as in `merged`; with `ink` sides lie between words where these are near. Every
    pixel of a box is in a region.
    """
    parts = [to_line_ends(box, lines, size) for box in boxes]
    while True:  # boxes only grow and unite, so this ends
        joined = merged(parts, frame, most)
        grown = [with_lines(box, lines, size, (0, 0)) for box in joined]
        if grown == parts:
            break
        parts = grown
    spread = [with_lines(box, lines, size, margin) for box in parts]
    if ink is not None:
        reach = 2 * margin[0]
        spread = [with_lines(ink.room(box, reach, size[0]), lines, size, (0, 0)) for box in spread]
    spread = merged(spread, frame, most)
    while True:  # a union may reach lines that neither part did
        again = merged([with_lines(box, lines, size, (0, 0)) for box in spread], frame, most)
        if again == spread:
            break
        spread = again
    return in_reading_order(spread)


def in_reading_order(boxes: Sequence[PixelBox]) -> list[PixelBox]:
    """Sort boxes row by row from the top, each row from the left."""
    left = sorted(boxes, key=lambda box: (box[1], box[0]))
    ordered: list[PixelBox] = []
    while left:
        first = left[0]
        row = [
            box
            for box in left
            if min(box[3], first[3]) - box[1] >= ROW_SHARE * min(box[3] - box[1], first[3] - first[1])
        ]
        ordered += sorted(row, key=lambda box: (box[0], box[1]))
        left = [box for box in left if box not in row]
    return ordered
