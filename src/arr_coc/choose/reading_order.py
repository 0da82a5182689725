"""Reading order: the blocks of print of a page, columns from left to right and each from top to bottom.

print_blocks(picture [3, h, w], (32, 32), most=273) -> [PrintBlock(box, cells), ...]
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

PRINT_CONTRAST = 0.2  # the least difference of luminance within 3 px that print makes
MAX_PRINT_IN_GAP = 0.012  # share of print in a row or column of px between blocks: a thin frame crosses it
COLUMN_GAP = 0.06  # the least gap between columns, as a share of the page's width: more than label to value
LINE_GAP = 3  # the least gap between lines, in px


class PrintBlock(NamedTuple):
    """A block of print: its box (x0, y0, x1, y1) in px and the cells that it touches, long [K], rising."""

    box: tuple[int, int, int, int]
    cells: Tensor


def print_blocks(picture: Tensor, grid: tuple[int, int], most: int) -> list[PrintBlock]:
    """Return the blocks of print of a page in reading order; one block of the whole page if no print is
    found.

    The X-Y cut (Nagy and Seth, 1984): between columns first, then between lines at the widest gap, until a
    block has at most `most` cells or is one line. `grid` (H, W) divides the picture evenly.
    """
    if picture.ndim != 3 or len(picture) != 3 or 0 in picture.shape:
        raise ValueError(f"picture must be [3, h, w], got {tuple(picture.shape)}; pass one picture in RGB")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"{most!r} cells are no size of a part: use 1 or more, usually 273")
    light = picture.float().mean(0)[None, None]
    # The largest less the smallest luminance within 3x3 px.
    spread = F.max_pool2d(light, 3, 1, 1) + F.max_pool2d(-light, 3, 1, 1)
    print_mask = (spread[0, 0] > PRINT_CONTRAST).cpu()
    height, width = print_mask.shape
    blocks = _cut(print_mask, (0, 0, width, height), grid, most)
    return blocks or [PrintBlock((0, 0, width, height), torch.arange(grid[0] * grid[1]))]


def _cut(mask: Tensor, box: tuple[int, int, int, int], grid: tuple[int, int], most: int) -> list[PrintBlock]:
    x0, y0, x1, y1 = box
    part = mask[y0:y1, x0:x1].float()
    if part.numel() == 0:
        return []
    rows, columns = (
        _runs(part.mean(axis), gap) for axis, gap in ((1, LINE_GAP), (0, COLUMN_GAP * mask.shape[1]))
    )
    if not rows or not columns:
        return []
    # The box shrinks to its print; a part that is one run each way can't be cut.
    box = (x0 + columns[0][0], y0 + rows[0][0], x0 + columns[-1][1], y0 + rows[-1][1])
    cells = _cells(box, mask.shape, grid)
    if len(cells) <= most or len(rows) == len(columns) == 1:
        return [PrintBlock(box, cells)]
    blocks: list[PrintBlock] = []
    if len(columns) > 1:
        for left, right in columns:
            blocks += _cut(mask, (x0 + left, box[1], x0 + right, box[3]), grid, most)
        return blocks
    # One column: cut at the widest gap between lines.
    gaps = [after[0] - before[1] for before, after in pairwise(rows)]
    middle = y0 + rows[gaps.index(max(gaps))][1]
    for top, bottom in ((box[1], middle), (middle, box[3])):
        blocks += _cut(mask, (box[0], top, box[2], bottom), grid, most)
    return blocks


def _runs(share: Tensor, gap: float) -> list[tuple[int, int]]:
    """Runs (start, end) of rows or columns with print, joined if less than `gap` px apart."""
    printed = F.pad((share > MAX_PRINT_IN_GAP).int(), (1, 1))
    steps = printed.diff()
    # A run starts at a step of +1 and ends before one of -1.
    starts, ends = ((steps == step).nonzero().flatten().tolist() for step in (1, -1))
    joined: list[tuple[int, int]] = []
    for start, end in zip(starts, ends, strict=True):
        if joined and start - joined[-1][1] < gap:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _cells(box: tuple[int, int, int, int], size: torch.Size, grid: tuple[int, int]) -> Tensor:
    x0, y0, x1, y1 = box
    (height, width), (high, wide) = size, grid
    top, bottom = y0 * high // height, -(-y1 * high // height)
    left, right = x0 * wide // width, -(-x1 * wide // width)
    rows = torch.arange(top, max(bottom, top + 1))
    return (rows[:, None] * wide + torch.arange(left, max(right, left + 1))[None]).flatten()
