"""Evidence: the cells of a grid that show what answers a question, from boxes and from relevance maps.

    evidence_cells(boxes, grid=(H, W), size) -> bool [H, W]
    map_cells(relevance, grid) -> float [H, W], of a relevance map of any size (`data.maps` reads them)

Targets of training and the measurement of recall use this one rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.data.record import Box

VISIBLE = 6 / 32  # share of a cell's side that a box has to cover, each way, to be seen in the cell
MARKED = 0.5  # a cell of a relevance map above this is evidence


def evidence_cells(boxes: Sequence[Box], grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """The cells of which a box (x0, y0, x1, y1) in px covers a visible part, bool [H, W].

    A cell counts if `VISIBLE` of its side is covered each way, or if it holds all of a smaller box. A smaller
    box across a border belongs to the cell that holds most of it, so no box inside the image is lost. `size`
    is the image's (width, height) in px.
    """
    mask = torch.zeros(grid, dtype=torch.bool)
    for x0, y0, x1, y1 in boxes:
        mask |= _covered(y0, y1, grid[0], size[1])[:, None] & _covered(x0, x1, grid[1], size[0])
    return mask


def _covered(low: float, high: float, cells: int, length: int) -> Tensor:
    """Which of `cells` equal parts of 0..length an interval covers, bool [cells]."""
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


def map_cells(relevance: Tensor, grid: tuple[int, int]) -> Tensor:
    """A relevance map [h, w] on a model's cells by the greatest value over each, float32 [H, W]."""
    return F.adaptive_max_pool2d(relevance.float()[None], grid)[0]


def all_evidence(
    boxes: Sequence[Box], relevance: Tensor | None, grid: tuple[int, int], size: tuple[int, int]
) -> Tensor:
    """`evidence_cells`, and the cells where a relevance map [h, w] is above `MARKED`, bool [H, W]."""
    cells = evidence_cells(boxes, grid, size)
    return cells if relevance is None else cells | (map_cells(relevance.cpu(), grid) > MARKED)
