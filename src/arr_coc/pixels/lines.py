"""Lines of print on a picture, how high they are, and where words end; from its pixels alone.

ink = find_ink(image)               where strokes begin and end
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
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image

from arr_coc.choose.boxes import Box
from arr_coc.guide.coupling import fitted
from arr_coc.guide.print_encoder import COLUMN_PX, INK_STEP, PLACE, luminance, print_runs

PixelBox = tuple[int, int, int, int]  # (x0, y0, x1, y1) in whole px
SIDE = 32  # px; the runs of print are found on pictures of whole multiples
HEIGHTS = (4, 64)  # px of a line: less is a rule, more a picture
INKED = 0.01  # least share of a row's pixels with ink that isn't blank
LEAST_WIDTH = 6  # px of a line
EDGES = 2  # px, of the pale edges above and below a line that belong to its box


class PrintInk(NamedTuple):
    """Where strokes of print begin and end on a picture, at the size at which the guide reads it."""

    marks: NDArray[np.bool_]  # [h, w], a step of luminance to the next pixel
    runs: NDArray[np.int64]  # [ceil(h / 16), ceil(w / 4)], of `print_runs`
    above: NDArray[np.int32]  # [h + 1, w], marks above each pixel in its column
    scale: tuple[float, float]  # px of the picture for one of these, across and down

    def room(self, box: PixelBox, reach: float, width: int) -> PixelBox:
        """A box in px of the picture, widened by at most `reach` px on each side to the next blank column.

        A side without one stays; `width` is that of the picture.
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


def find_ink(image: Image.Image) -> PrintInk:
    """The ink of an RGB image: steps of luminance, and the guide's runs of print."""
    size = fitted(*image.size)
    small = image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1)[None].float().div_(255)
    light = luminance(pixels)
    height, width = light.shape[-2:]
    padded = F.pad(light, (0, -width % SIDE, 0, -height % SIDE), mode="replicate")
    runs = print_runs(padded)[0, :, : -(-width // COLUMN_PX)].numpy()
    gray = light[0, 0].numpy()
    marks = np.zeros(gray.shape, dtype=bool)
    marks[:, :-1] |= np.abs(np.diff(gray, axis=1)) > INK_STEP
    marks[:-1] |= np.abs(np.diff(gray, axis=0)) > INK_STEP
    above = np.pad(marks.cumsum(0, dtype=np.int32), ((1, 0), (0, 0)))
    return PrintInk(marks, runs, above, (image.width / width, image.height / height))


def find_lines(ink: PrintInk) -> tuple[Box, ...]:
    """The lines of print of a picture, as boxes in its px, top to bottom.

    The runs of print say which columns hold ink; the rows of pixels there, from blank to blank, how high a
    line is, and a pixel above and below is its pale edge. Gaps wider than a few letters divide a line.
    """
    across, down = ink.scale
    boxes = {
        box for row, first, last in _stretches(ink.runs) for box in _rows_of(ink.marks, row, first, last)
    }
    joined = _joined(sorted(boxes, key=lambda box: (box[1], box[0])))
    return tuple((x0 * across, y0 * down, x1 * across, y1 * down) for x0, y0, x1, y1 in joined)


def print_height(lines: Sequence[Box], weights: Sequence[float] | None = None) -> float | None:
    """The height in px of the print that matters: a third of all lines, by width and weight, are lower.

    `weights`, one a line, say how much each matters; None: all alike. None where there is no print.
    """
    if not lines:
        return None
    heights = np.array([max(1.0, box[3] - box[1] - EDGES) for box in lines])
    widths = np.array([box[2] - box[0] for box in lines])
    mass = np.sqrt(widths) * (1.0 if weights is None else np.asarray(weights, dtype=float))
    if mass.sum() <= 0:
        mass = np.sqrt(widths)
    order = heights.argsort(kind="stable")
    reached = mass[order].cumsum()
    return float(heights[order][int((reached >= reached[-1] / 3).argmax())])


def _stretches(runs: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Row of places, first and last column + 1 of each run of `print_runs`."""
    flat = np.pad(runs, ((0, 0), (1, 1)))
    rows, starts = np.nonzero((flat[:, 1:-1] > 0) & (flat[:, :-2] != flat[:, 1:-1]))
    _, ends = np.nonzero((flat[:, 1:-1] > 0) & (flat[:, 2:] != flat[:, 1:-1]))
    return [
        (int(row), int(first), int(last) + 1) for row, first, last in zip(rows, starts, ends, strict=True)
    ]


def _rows_of(ink: NDArray[np.bool_], row: int, first: int, last: int) -> list[tuple[int, int, int, int]]:
    """The lines of print that cross a run: rows of pixels with ink, between blank ones."""
    height, width = ink.shape
    x0, x1 = first * COLUMN_PX, min(last * COLUMN_PX, width)
    top, bottom = row * PLACE[0], min((row + 1) * PLACE[0], height)
    above, below = max(0, top - HEIGHTS[1]), min(height, bottom + HEIGHTS[1])
    if x1 - x0 < LEAST_WIDTH:
        return []
    inked = np.pad(ink[above:below, x0:x1].mean(1) > INKED, 1)
    edges = np.flatnonzero(inked[1:] != inked[:-1]) + above
    boxes = []
    for y0, y1 in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if y0 < bottom and y1 > top and HEIGHTS[0] <= y1 - y0 <= HEIGHTS[1]:
            boxes.append((x0, y0, x1, min(y1 + 1, height)))
    return boxes


def _joined(boxes: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Boxes of which those that show the same line, found from two rows of places, are one."""
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
