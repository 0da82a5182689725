"""V-CAST (Lin et al. 2026, arXiv 2603.27650): more of the frames where the clip changes direction.

g_t = unit vector of the mean cell of frame t
curvature_t = 1 - cos(g_t - g_{t-1}, g_{t+1} - g_t);  1 at both ends
counts by softmax(curvature / 0.7), at least 1 for each frame
of frame t the cells of the highest (1 - cos(x, g_t)) + min-max over the frame of ||x||
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc_lab.rivals.clips.keeping import apart, apportion, best_of_each, check_clip
from arr_coc_lab.rivals.clips.method import ClipMethod, register_clip_method
from arr_coc_lab.rivals.method import Style

TEMPERATURE = 0.7


@torch.no_grad()
def vcast(features: Tensor, budget: int) -> Tensor:
    """Atypical and strong cells, more of high-curvature frames, `features` [T, N, D] -> Bool [T, N]."""
    steps, cells = check_clip(features, budget)
    counts = apportion(frame_weights(features), min(budget, steps * cells), most=cells, least=1)
    return best_of_each(cell_scores(features), counts)


def frame_directions(features: Tensor) -> Tensor:
    """Return the unit vectors of the mean cells, [T, N, D] -> [T, D]."""
    return F.normalize(features.float().mean(1), dim=-1)


def frame_weights(features: Tensor) -> Tensor:
    """Shares of the budget by curvature, [T, N, D] -> [T] with sum 1."""
    directions = frame_directions(features)
    curvature = torch.ones(len(directions), device=features.device)
    if len(directions) > 2:
        steps = directions.diff(dim=0)
        curvature[1:-1] = apart(steps[:-1], steps[1:])  # both ends keep 1
    return (curvature / TEMPERATURE).softmax(0)


def cell_scores(features: Tensor) -> Tensor:
    """Return how atypical and strong each cell is within its frame, [T, N, D] -> [T, N] in [0, 3]."""
    norm = features.float().norm(dim=-1)
    low, high = norm.amin(1, keepdim=True), norm.amax(1, keepdim=True)
    strength = (norm - low) / (high - low).clamp_min(torch.finfo(norm.dtype).tiny)
    return apart(features, frame_directions(features)[:, None]) + strength


register_clip_method(
    ClipMethod(
        "v-cast",
        "rival",
        lambda view, k: vcast(view.read("features"), k),
        "after",
        needs=frozenset({"features"}),
        label="V-CAST",
        paper="Lin et al. 2026, arXiv 2603.27650",
        title="V-CAST: Video Curvature-Aware Spatio-Temporal Pruning for Efficient Video Large Language "
        "Models",
        style=Style("#8c8c2b", "h"),
    )
)
