"""VidCom2 (Liu et al. 2025, arXiv 2505.14454): cells unlike the clip and their frame, more of unusual frames.

x = unit vectors over the half of the channels with the least variance
s(x, c) = sum over a in {1/8, 1/4, 1/2, 1, 2} of exp(-||x - c||^2 / 2a)
frame score = -mean over its cells of s(x, mean of the clip);  p = softmax(frame score / 0.01)
k_t = round(N min(1, r (1 + p_t - mean p))), at least 1
of frame t the k_t cells of the lowest s(x, mean of the clip) + s(x, mean of the frame)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc_lab.rivals.clips.keeping import best_of_each, check_clip, lowest
from arr_coc_lab.rivals.clips.method import ClipMethod, register_clip_method
from arr_coc_lab.rivals.method import Style

WIDTHS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)  # a of the Gaussian kernels
TEMPERATURE = 0.01


@torch.no_grad()
def vidcom2(features: Tensor, budget: int) -> Tensor:
    """Return the cells least like the clip and their own frame, `features` [T, N, D] -> Bool [T, N]."""
    check_clip(features, budget)
    clip, frame = similarities(features)
    counts = frame_counts(clip, budget)
    similar = clip + frame
    kept = best_of_each(-similar, counts)
    first = best_of_each(-similar, torch.ones_like(counts))  # a frame's last cell, should others go
    # the paper's rounded counts do not sum to the budget
    return lowest(similar, budget, tier=2 - kept.int() - first.int())


def steady_channels(features: Tensor) -> Tensor:
    """Return the half of the channels with the least variance over all cells, [T, N, D] -> Long [max(1, D //
    2)].
    """
    variance = features.float().flatten(0, 1).var(0, correction=0)
    return variance.argsort(stable=True)[: max(1, features.shape[-1] // 2)].sort().values


def similarities(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return how similar each cell is to the clip's mean and to its frame's mean, [T, N] each, in (0, 5]."""
    cells = F.normalize(features.float()[..., steady_channels(features)], dim=-1)
    return _similar(cells, cells.mean((0, 1), keepdim=True)), _similar(cells, cells.mean(1, keepdim=True))


def _similar(cells: Tensor, centre: Tensor) -> Tensor:
    squared = (cells - centre).square().sum(-1)
    return torch.stack([torch.exp(-squared / (2 * width)) for width in WIDTHS]).sum(0)


def frame_counts(clip: Tensor, budget: int) -> Tensor:
    """Return the paper's count of cells for each frame, of the similarities to the clip [T, N] -> Long
    [T].
    """
    steps, cells = clip.shape
    share = min(1.0, budget / (steps * cells))
    odd = (-clip.mean(1) / TEMPERATURE).softmax(0)
    rate = (share * (1 + odd - odd.mean())).clamp(max=1)
    return (rate * cells).round().long().clamp(min=1)  # halves to even


register_clip_method(
    ClipMethod(
        "vidcom2",
        "rival",
        lambda view, k: vidcom2(view.read("features"), k),
        "after",
        needs=frozenset({"features"}),
        label="VidCom2",
        paper="Liu et al. 2025, arXiv 2505.14454",
        title="Video Compression Commander: Plug-and-Play Inference Acceleration for Video Large Language "
        "Models",
        style=Style("#4f9bc4", "^"),
    )
)
