"""Evidence cells: which cells of a grid show the part of an image that answers a question.

    evidence_cells(((3, 4, 90, 30),), (32, 32), (1024, 1024)) -> bool [32, 32]
    map_cells(relevance, (32, 32))                            -> float [32, 32]

The one rule for targets of training and for measuring recall.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.data.record import Box

VISIBLE = 6 / 32
"""Share of a cell's side that a box has to cover, each way, for the cell to show a part that can be seen."""
MARKED = 0.5
"""A cell of a relevance map above this is evidence."""


def evidence_cells(boxes: Sequence[Box], grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Cells of which a box covers a part that can be seen, whatever the size of a cell.

    A cell counts that is covered by `VISIBLE` of its side each way, or holds all of a smaller box. A box that
    is too small for that and lies across a border belongs to the cell that holds most of it, so no box inside
    the image is lost.

    Args:
        boxes: (x0, y0, x1, y1) in px of the image; what is outside of it does not count.
        grid: (H, W) cells.
        size: (width, height) of the image in px.

    Returns:
        Bool [H, W].
    """
    mask = torch.zeros(grid, dtype=torch.bool)
    for x0, y0, x1, y1 in boxes:
        mask |= _covered(y0, y1, grid[0], size[1])[:, None] & _covered(x0, x1, grid[1], size[0])
    return mask


def _covered(low: float, high: float, cells: int, length: int) -> Tensor:
    """Which of `cells` equal parts of 0..length an interval covers: bool [cells]."""
    low, high = max(0.0, low), min(float(length), high)
    if high <= low:
        return torch.zeros(cells, dtype=torch.bool)
    edges = torch.arange(cells + 1, dtype=torch.float64) * length / cells
    overlap = edges[1:].clamp(max=high) - edges[:-1].clamp(min=low)
    almost = 1 - 1e-9  # a scaled box is off by a rounding error
    enough = overlap >= min(VISIBLE * length / cells, high - low) * almost
    if not enough.any():
        enough[(overlap >= overlap.max() * almost).nonzero()[0]] = True
    return enough


def map_cells(relevance: Tensor, grid: tuple[int, int]) -> Tensor:
    """A relevance map on a model's cells: each has the greatest value that lies over it.

    Args:
        relevance: [h, w] over the whole image, of any grid.
        grid: (H, W) cells.

    Returns:
        Float32 [H, W].
    """
    return F.adaptive_max_pool2d(relevance.float()[None], grid)[0]


def all_evidence(
    boxes: Sequence[Box], relevance: Tensor | None, grid: tuple[int, int], size: tuple[int, int]
) -> Tensor:
    """The cells of boxes and those where a relevance map is above `MARKED`: bool [H, W].

    Args:
        boxes: (x0, y0, x1, y1) in px of the image.
        relevance: [h, w] in [0, 1] over the whole image, of any grid; None: there is none.
        grid: (H, W) cells.
        size: (width, height) of the image in px.
    """
    cells = evidence_cells(boxes, grid, size)
    return cells if relevance is None else cells | (map_cells(relevance.cpu(), grid) > MARKED)
