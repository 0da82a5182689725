"""Find lines of print on a picture, their height, and where words end, from pixels alone (no OCR).

light = read_light(image)           luminance as the guide reads it
rules = find_rules(light)           straight edges: drawn lines, borders of fills and frames
ink = find_ink(light, rules, size)  where strokes begin and end
find_lines(ink)                     boxes (x0, y0, x1, y1) in px of the image, one for each stretch of a line
print_height(lines, weights)        24.0, px of the print that matters; None where there is none
ink.room(box, 12)                   the box widened to blank columns
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from arr_coc.choose.boxes import Box
from arr_coc.guide.coupling import fitted
from arr_coc.guide.print_encoder import COLUMN_PX, INK_STEP, MAX_GAP, PLACE, luminance

PixelBox = tuple[int, int, int, int]  # (x0, y0, x1, y1) in whole px
RULE_STEP = 0.015  # of luminance, across a rule: a card is often that much lighter than the page
MIN_RULE = (24, 12)  # px of a rule that lies, and of one that stands
PIECE, CROSSING = 8, 3  # px of a piece of a rule, and between two of them, where another rule crosses it
CORNER = 10  # px that the round corner of a frame takes off its sides
MIN_ERASED = (48, 40)  # the same of rules that can't be strokes of letters
MAX_RULES = 4000  # of each direction; the longest
HEIGHTS = (4, 64)  # px of a line: less is a rule, more a picture
INKED = 0.01  # least share of a row's pixels with ink that isn't blank
MIN_WIDTH = 6  # px of a line
BLANK = 0.6  # heights of a line, between two of its words
EDGES = 2  # px, of the pale edges above and below a line that belong to its box
FLAT, STOUT = 0.18, 3.5  # share of marks and width by height below which a box of MIN_THING px shows no print
MIN_THING = 14


class PrintInk(NamedTuple):
    """Where strokes of print begin and end on a picture, at the size at which the guide reads it."""

    marks: NDArray[np.bool_]  # [h, w], a step of luminance to the next pixel that is on no long rule
    above: NDArray[np.int16]  # [h + 1, w], marks above each pixel in its column
    scale: tuple[float, float]  # px of the picture for one of these, across and down

    def room(self, box: PixelBox, reach: float, width: int) -> PixelBox:
        """Widen a box, in px of the picture, by at most `reach` px on each side to the next blank column.

        A side without a blank column in reach stays; `width` is that of the picture.
        """
        across, down = self.scale
        top, bottom = int(box[1] / down), max(int(box[1] / down) + 1, math.ceil(box[3] / down))
        bottom = min(bottom, len(self.above) - 1)
        blank = self.above[bottom] == self.above[min(top, bottom)]
        steps = int(reach / across)
        left, right = int(box[0] / across), min(len(blank), math.ceil(box[2] / across))
        before = np.flatnonzero(blank[max(0, left - steps) : left + 1][::-1])
        after = np.flatnonzero(blank[max(0, right - 1) : right + steps])
        x0 = box[0] if not before.size else min(box[0], int((left - before[0]) * across))
        x1 = box[2] if not after.size else max(box[2], math.ceil((right + after[0]) * across))
        return max(0, x0), box[1], min(width, x1), box[3]


class Rules(NamedTuple):
    """Straight edges of a picture, in px at the size at which the guide reads it."""

    lying: NDArray[np.int64]  # [n, 3]: y, x0 and x1 of each
    standing: NDArray[np.int64]  # [n, 3]: x, y0 and y1 of each


def read_light(image: Image.Image) -> NDArray[np.float32]:
    """Return the luminance of an RGB image, [h, w] in [0, 1], at the size at which the guide reads it."""
    size = fitted(*image.size)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float().div_(255)
    return luminance(pixels)[0, 0].numpy()


def find_rules(light: NDArray[np.float32]) -> Rules:
    """Return the straight edges of a picture of luminance [h, w]; strokes of large letters are among them."""
    return Rules(_edges(light, MIN_RULE[0]), _edges(light.T, MIN_RULE[1]))


def _edges(light: NDArray[np.float32], least: int) -> NDArray[np.int64]:
    """Return row, start and end of steps of one sign between rows of pixels, `least` px long or more."""
    steps = np.diff(light, axis=0)
    signs = np.pad((steps > RULE_STEP).astype(np.int8) - (steps < -RULE_STEP), ((0, 0), (1, 1)))
    row, column = np.divmod(np.flatnonzero(signs[:, 1:] != signs[:, :-1]), signs.shape[1] - 1)
    length = np.where(row[1:] == row[:-1], column[1:] - column[:-1], 0)
    sign = signs[row[:-1], column[:-1] + 1]
    kept = (length >= PIECE) & (sign != 0)
    row, first, last, sign = row[:-1][kept], column[:-1][kept], column[1:][kept], sign[kept]
    if not len(row):
        return np.empty((0, 3), dtype=np.int64)
    order = np.lexsort((first, sign, row))
    row, first, last, sign = row[order], first[order], last[order], sign[order]
    apart = (row[1:] != row[:-1]) | (sign[1:] != sign[:-1]) | (first[1:] - last[:-1] > CROSSING)
    begin = np.flatnonzero(np.concatenate(([True], apart)))
    end = np.append(begin[1:] - 1, len(row) - 1)
    edges = np.stack((row[begin] + 1, first[begin], last[end]), 1)
    edges = edges[edges[:, 2] - edges[:, 1] >= least]
    longest = np.argsort(edges[:, 1] - edges[:, 2], kind="stable")[:MAX_RULES]
    return edges[np.sort(longest)]


def find_ink(light: NDArray[np.float32], rules: Rules, size: tuple[int, int]) -> PrintInk:
    """Return the ink of a picture of `size` = (width, height) px: steps of its luminance, less long rules."""
    down, across = (np.abs(np.diff(light, axis=axis)) > INK_STEP for axis in (0, 1))
    lying, standing = (
        edges[edges[:, 2] - edges[:, 1] >= least] for edges, least in zip(rules, MIN_ERASED, strict=True)
    )
    standing = np.concatenate((standing, rules.standing[_are_sides(rules.standing, lying)]))
    for steps, edges in ((down, lying), (across.T, standing)):
        for at, first, last in edges.tolist():
            steps[at - 1, first:last] = False
    marks = np.zeros(light.shape, dtype=bool)
    marks[:, :-1] |= across
    marks[:-1] |= down
    above = np.pad(marks.cumsum(0, dtype=np.int16), ((1, 0), (0, 0)))
    return PrintInk(marks, above, (size[0] / light.shape[1], size[1] / light.shape[0]))


def _are_sides(standing: NDArray[np.int64], lying: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which vertical rules are sides of a frame: both ends are near ends of horizontal ones."""
    x, top, bottom = (standing[:, None, k] for k in range(3))
    beside = (np.abs(x - lying[:, 1]) <= CORNER) | (np.abs(x - lying[:, 2]) <= CORNER)
    ends = [np.any(beside & (np.abs(y - lying[:, 0]) <= CORNER), axis=1) for y in (top, bottom)]
    return ends[0] & ends[1]


def find_lines(ink: PrintInk) -> tuple[Box, ...]:
    """Return the lines of print of a picture, as boxes in its px, top to bottom.

    Stretches of columns with ink give a line's place, the rows of pixels from blank to blank its height; a
    pixel above and below is added for pale edges. Gaps wider than a few letters divide a line.
    """
    across, down = ink.scale
    boxes = {
        box for row, first, last in _stretches(ink.marks) for box in _rows_of(ink.marks, row, first, last)
    }
    joined = _across(_joined(sorted(boxes, key=lambda box: (box[1], box[0]))))
    return tuple((x0 * across, y0 * down, x1 * across, y1 * down) for x0, y0, x1, y1 in joined)


def _across(boxes: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Merge boxes of one height that are no further apart than a blank of their print."""
    lines: list[tuple[int, int, int, int]] = []
    for box in sorted(boxes, key=lambda box: (box[0], box[1])):
        x0, y0, x1, y1 = box
        for number in range(len(lines) - 1, -1, -1):
            a = lines[number]
            heights = y1 - y0, a[3] - a[1]
            if -min(heights) <= x0 - a[2] <= BLANK * min(heights) and min(a[3], y1) - max(
                a[1], y0
            ) > 0.7 * max(heights):
                lines[number] = (a[0], min(a[1], y0), max(a[2], x1), max(a[3], y1))
                break
        else:
            lines.append(box)
    return sorted(lines, key=lambda box: (box[1], box[0]))


def line_heights(lines: Sequence[Box]) -> NDArray[np.float64]:
    """Return the height in px of the print of each line [L], at least 1, without its pale edges."""
    return np.array([max(1.0, box[3] - box[1] - EDGES) for box in lines])


def print_height(lines: Sequence[Box], weights: Sequence[float] | None = None) -> float | None:
    """Return the height in px of the print that matters: a third of lines, by width and weight, are lower.

    `weights` say how much each line matters; None: all alike. Without print the result is None.
    """
    if not lines:
        return None
    heights = line_heights(lines)
    widths = np.array([box[2] - box[0] for box in lines])
    mass = np.sqrt(widths) * (1.0 if weights is None else np.asarray(weights, dtype=float))
    if mass.sum() <= 0:
        mass = np.sqrt(widths)
    order = heights.argsort(kind="stable")
    reached = mass[order].cumsum()
    return float(heights[order][int((reached >= reached[-1] / 3).argmax())])


def _stretches(marks: NDArray[np.bool_]) -> list[tuple[int, int, int]]:
    """Return row, first column and last column + 1 of each stretch of ink.

    A column is COLUMN_PX wide; up to MAX_GAP columns without ink don't end a stretch.
    """
    sides = PLACE[0], COLUMN_PX
    padded = np.pad(marks, [(0, -side % part) for side, part in zip(marks.shape, sides, strict=True)])
    rows, columns = (side // part for side, part in zip(padded.shape, sides, strict=True))
    inked = padded.reshape(rows, sides[0], columns, sides[1]).any((1, 3))
    edges = np.pad(inked, ((0, 0), (1, 1)))
    row, first = np.nonzero(edges[:, 1:-1] & ~edges[:, :-2])
    _, last = np.nonzero(edges[:, 1:-1] & ~edges[:, 2:])
    if not len(row):
        return []
    apart = (row[1:] != row[:-1]) | (first[1:] - last[:-1] - 1 > MAX_GAP)
    begin, end = (
        np.flatnonzero(np.pad(apart, (1, 0), constant_values=True)),
        np.flatnonzero(np.pad(apart, (0, 1), constant_values=True)),
    )
    return list(zip(row[begin].tolist(), first[begin].tolist(), (last[end] + 1).tolist(), strict=True))


def _rows_of(ink: NDArray[np.bool_], row: int, first: int, last: int) -> list[tuple[int, int, int, int]]:
    """Return the lines of print that cross a stretch: rows of pixels with ink, between blank ones."""
    height, width = ink.shape
    x0, x1 = first * COLUMN_PX, min(last * COLUMN_PX, width)
    top, bottom = row * PLACE[0], min((row + 1) * PLACE[0], height)
    above, below = max(0, top - HEIGHTS[1]), min(height, bottom + HEIGHTS[1])
    if x1 - x0 < MIN_WIDTH:
        return []
    inked = np.pad(ink[above:below, x0:x1].mean(1) > INKED, 1)
    edges = np.flatnonzero(inked[1:] != inked[:-1]) + above
    boxes = []
    for y0, y1 in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if y0 < bottom and y1 > top and HEIGHTS[0] <= y1 - y0 <= HEIGHTS[1]:
            stout = y1 - y0 >= MIN_THING and x1 - x0 < STOUT * (y1 - y0)
            if not (stout and ink[y0:y1, x0:x1].mean() < FLAT):  # a switch, a dot
                boxes.append((x0, y0, x1, min(y1 + 1, height)))
    return boxes


def _joined(boxes: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Merge boxes that show the same line, found from two rows."""
    kept: list[tuple[int, int, int, int]] = []
    recent: list[int] = []  # of `kept`, which the next box may still touch
    for box in boxes:
        x0, y0, x1, y1 = box
        recent = [i for i in recent if kept[i][3] > y0]
        same = [
            i for i in recent
            if kept[i][0] < x1 and x0 < kept[i][2]
            and min(kept[i][3], y1) - y0 > 0.5 * max(y1 - y0, kept[i][3] - kept[i][1])
        ]  # fmt: skip
        if same:
            i = same[0]
            a = kept[i]
            kept[i] = (min(a[0], x0), min(a[1], y0), max(a[2], x1), max(a[3], y1))
        else:
            recent.append(len(kept))
            kept.append(box)
    return kept
