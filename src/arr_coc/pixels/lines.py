"""Lines of print on a picture, and how high they are; from its pixels alone.

find_lines(image)                   boxes (x0, y0, x1, y1) in px, one for each stretch of a line
print_height(lines, relevance)      24.0, px of the print that matters; None where there is none
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image

from arr_coc.choose.boxes import Box
from arr_coc.guide.coupling import fitted
from arr_coc.guide.print_encoder import COLUMN_PX, INK_STEP, PLACE, luminance, print_runs

SIDE = 32  # px; the runs of print are found on pictures of whole multiples
HEIGHTS = (4, 64)  # px of a line: less is a rule, more a picture
INKED = 0.01  # least share of a row's pixels with ink that isn't blank
LEAST_WIDTH = 6  # px of a line


def find_lines(image: Image.Image) -> tuple[Box, ...]:
    """The lines of print of an RGB image, as boxes in its px, top to bottom.

    The guide's runs of print say which columns hold ink; the rows of the pixels there, from blank to blank, how
    high the line is. Gaps wider than a few letters divide a line.
    """
    size = fitted(*image.size)
    small = image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1)[None].float().div_(255)
    light = luminance(pixels)
    height, width = light.shape[-2:]
    padded = F.pad(light, (0, -width % SIDE, 0, -height % SIDE), mode="replicate")
    runs = print_runs(padded)[:, : -(-width // COLUMN_PX)].numpy()
    gray = light[0, 0].numpy()
    ink = np.zeros(gray.shape, dtype=bool)
    ink[:, :-1] |= np.abs(np.diff(gray, axis=1)) > INK_STEP
    ink[:-1] |= np.abs(np.diff(gray, axis=0)) > INK_STEP
    scale = (image.width / width, image.height / height)
    boxes = {box for row, first, last in _stretches(runs) for box in _rows_of(ink, row, first, last)}
    joined = _joined(sorted(boxes, key=lambda box: (box[1], box[0])))
    return tuple((x0 * scale[0], y0 * scale[1], x1 * scale[0], y1 * scale[1]) for x0, y0, x1, y1 in joined)


def print_height(lines: Sequence[Box], weights: Sequence[float] | None = None) -> float | None:
    """The height in px of the print that matters: the median over lines, by width and weight.

    `weights`, one a line, say how much each matters; None: all alike. None where there is no print.
    """
    if not lines:
        return None
    heights = np.array([box[3] - box[1] for box in lines])
    widths = np.array([box[2] - box[0] for box in lines])
    mass = np.sqrt(widths) * (1.0 if weights is None else np.asarray(weights, dtype=float))
    if mass.sum() <= 0:
        mass = np.sqrt(widths)
    order = heights.argsort(kind="stable")
    reached = mass[order].cumsum()
    return float(heights[order][int((reached >= reached[-1] / 2).argmax())])


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
            boxes.append((x0, y0, x1, y1 + 1 if y1 < height else y1))
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
