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

from arr_coc.choose.boxes import Box, box_cells

MARKED = 0.5  # a cell of a relevance map above this is evidence


def evidence_cells(boxes: Sequence[Box], grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Return the cells of which a box (x0, y0, x1, y1) in px covers a visible part (`box_cells`), bool [H,
    W].

    `size` is the image's (width, height) in px.
    """
    mask = torch.zeros(grid, dtype=torch.bool)
    for box in boxes:
        mask |= box_cells(box, grid, size)
    return mask


def map_cells(relevance: Tensor, grid: tuple[int, int]) -> Tensor:
    """Return a relevance map [h, w] on a model's cells by the greatest value over each, float32 [H, W]."""
    return F.adaptive_max_pool2d(relevance.float()[None], grid)[0]


def all_evidence(
    boxes: Sequence[Box], relevance: Tensor | None, grid: tuple[int, int], size: tuple[int, int]
) -> Tensor:
    """`evidence_cells`, and the cells where a relevance map [h, w] is above `MARKED`, bool [H, W]."""
    cells = evidence_cells(boxes, grid, size)
    return cells if relevance is None else cells | (map_cells(relevance.cpu(), grid) > MARKED)
