"""Boxes on a grid: which cells a rectangle in pixels covers.

box_cells((x0, y0, x1, y1), grid=(H, W), size) -> bool [H, W]
"""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.files.images import Box

VISIBLE = 6 / 32  # share of a cell's side that a box has to cover, each way, to be seen in the cell


def box_cells(box: Box, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Return the cells of which a box covers a visible part, bool [H, W]; `size`: (width, height) of the
    picture in px.

    A cell counts if `VISIBLE` of its side is covered each way, or if it holds all of a smaller box. A smaller
    box across a border belongs to the cell that holds most of it, so no box inside the picture is lost.
    """
    x0, y0, x1, y1 = box
    return _covered(y0, y1, grid[0], size[1])[:, None] & _covered(x0, x1, grid[1], size[0])


def _covered(low: float, high: float, cells: int, length: int) -> Tensor:
    """Return which of `cells` equal parts of 0..length an interval covers visibly, bool [cells]."""
    low, high = max(0.0, low), min(float(length), high)
    if high <= low:
        return torch.zeros(cells, dtype=torch.bool)
    edges = torch.arange(cells + 1, dtype=torch.float64) * length / cells
    overlap = edges[1:].clamp(max=high) - edges[:-1].clamp(min=low)
    almost = 1 - 1e-9  # a scaled box is off by a rounding error
    enough = overlap >= min(VISIBLE * length / cells, high - low) * almost
    if not enough.any():  # a small box across a border: the cell that holds most of it
        enough[(overlap >= overlap.max() * almost).nonzero()[0]] = True
    return enough
