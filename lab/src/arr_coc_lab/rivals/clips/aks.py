"""AKS (Tang et al. 2025, arXiv 2502.21271): full frames by their scores for the question, and by coverage.

scores to [0, 1] over the clip;  n frames to choose
segment: if mean of its n highest - mean of all > 0.8, or at depth 5: its n / 2^depth highest frames
    else: halve it
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from arr_coc_lab.rivals.clips.keeping import check_count, check_grid, whole_frames
from arr_coc_lab.rivals.clips.method import ClipMethod, register_clip_method
from arr_coc_lab.rivals.method import Style
from arr_coc_lab.rivals.reduction import check_finite, top_k

PEAKED = 0.8
"""A segment is not halved where its best scores exceed its mean by more than this."""
DEPTH = 5


class Segment(NamedTuple):
    """Frames start..stop - 1, halved from the clip `depth` times."""

    start: int
    stop: int
    depth: int


@torch.no_grad()
def aks(scores: Tensor, grid: tuple[int, int, int], budget: int) -> Tensor:
    """Full frames that fit the question and cover the clip of `grid` (T, H, W) -> Bool [T, N].

    `scores` [T] are higher for better (CLIP or BLIP in the paper). At least one frame is chosen; the
    remainder buys cells of the next frame by score.
    """
    steps, height, width = check_grid(grid)
    check_count(budget)
    if scores.shape != (steps,):
        raise ValueError(f"scores have shape {tuple(scores.shape)}; pass [{steps}], one for each time step")
    check_finite("scores", scores)
    scores = scores.float()
    count = min(steps, max(1, budget // (height * width)))
    chosen = torch.zeros(steps, dtype=torch.bool, device=scores.device)
    for start, stop, depth in segments(scores, count):
        chosen[start + top_k(scores[start:stop], count // 2**depth)] = True
    order = scores.argsort(descending=True, stable=True)
    order = order[(~chosen)[order].int().argsort(stable=True)]  # chosen frames first, the others by score
    return whole_frames(order, grid, budget)


def segments(scores: Tensor, count: int) -> list[Segment]:
    """Return the segments from which `count` frames are chosen, in the order of time, scores [T]."""
    low, high = scores.aminmax()
    scaled = (scores - low) / (high - low) if bool(high > low) else torch.zeros_like(scores)
    result: list[Segment] = []

    def halve(segment: Segment) -> None:
        start, stop, depth = segment
        part = scaled[start:stop]
        peak = part.sort(descending=True).values[:count].mean() - part.mean()
        # not in the paper: halves due less than one frame each end the halving
        if float(peak) > PEAKED or depth == DEPTH or stop - start == 1 or count < 2 ** (depth + 1):
            result.append(segment)
            return
        middle = start + (stop - start) // 2
        halve(Segment(start, middle, depth + 1))
        halve(Segment(middle, stop, depth + 1))

    halve(Segment(0, len(scores), 0))
    return result


register_clip_method(
    ClipMethod(
        "aks",
        "rival",
        lambda view, k: aks(view.read("scores"), view.grid, k),
        "before",
        needs=frozenset({"scores"}),
        by_question=True,
        label="AKS",
        paper="Tang et al. 2025, arXiv 2502.21271",
        title="Adaptive Keyframe Sampling for Long Video Understanding",
        style=Style("#b0563a", "D"),
    )
)
