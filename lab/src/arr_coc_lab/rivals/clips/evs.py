"""EVS (Bagrov et al. 2025, arXiv 2510.14624): the cells that differ most from the frame before.

change(t, y, x) = 1 - cos(cell t, same cell t-1);  change of the first frame is infinite
keep the budget's highest
"""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.attending import even_grid
from arr_coc_lab.rivals.clips.keeping import apart, check_clip, lowest
from arr_coc_lab.rivals.clips.method import ClipMethod, register_clip_method
from arr_coc_lab.rivals.method import Style


@torch.no_grad()
def evs(features: Tensor, budget: int) -> Tensor:
    """Return the first frame, then the cells that change most, `features` [T, N, D] -> Bool [T, N]."""
    steps, cells = check_clip(features, budget)
    change = torch.full((steps, cells), torch.inf, device=features.device)
    change[1:] = apart(features[1:], features[:-1])  # the first frame is always kept
    if budget < cells:  # the first frame's cells, evenly along the raster
        change[0] = -torch.inf
        change[0, even_grid((1, cells), budget, features.device)] = torch.inf
    return lowest(-change, budget)


register_clip_method(
    ClipMethod(
        "evs",
        "rival",
        lambda view, k: evs(view.read("features"), k),
        "after",
        needs=frozenset({"features"}),
        label="EVS",
        paper="Bagrov et al. 2025, arXiv 2510.14624",
        title="Efficient Video Sampling: Pruning Temporally Redundant Tokens for Faster VLM Inference",
        style=Style("#33508f", "s"),
    )
)
