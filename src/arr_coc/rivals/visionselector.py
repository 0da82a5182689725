"""VisionSelector (Zhu et al. 2025, arXiv 2510.16598): a learned scorer that never sees the question.

    q = V Wq, k = V Wk;  s_i = mean_j (q_i . k_j) / sqrt(width);  keep the k highest s_i

It learns through a soft top-k: p = sigmoid(s + t), with t such that the p sum to k. The curriculum from
soft to hard masks and the loss are the trainer's, as is detaching the scorer's input.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from arr_coc.rivals.selection import Selection, check_budget, check_finite, check_inputs, top_k


class QueryBlindScorer(nn.Module):
    """Scores visual tokens by the mean of their attention logits over all tokens of their image.

    Args:
        dim: Width D of the tokens.
        width: Width of queries and keys; D // 2 as published (12.85 million parameters at D = 3584).
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(dim, width, bias=False)
        self.key = nn.Linear(dim, width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores, [N, D] -> [N] or [B, N, D] -> [B, N] (images of equal N: the mean knows no padding)."""
        # s_i = mean_j q_i . k_j = q_i . mean_j k_j = q_i . (mean_j v_j) Wk: a dot product is linear in its
        # second side, and so is Wk. Each token keeps its own query and meets one mean key: O(N), not O(N^2).
        mean_key = self.key(tokens.mean(-2))  # (..., width)
        return (self.query(tokens) @ mean_key.unsqueeze(-1)).squeeze(-1) / math.sqrt(mean_key.shape[-1])


@torch.no_grad()
def visionselector(scores: Tensor, k: int) -> Selection:
    """The k highest of `scores` [N], those of a `QueryBlindScorer`.

    Raises:
        ValueError: k is not in 1..N, or a score is NaN or infinite.
    """
    check_inputs(k, scores=scores)
    return Selection(top_k(scores, k).sort().values)


def soft_top_k(scores: Tensor, k: int) -> Tensor:
    """Probabilities of being kept that sum to k, [..., N] -> [..., N], differentiable in the scores.

    p = sigmoid(s + t), t by bisection. The gradient is exact and does not depend on the steps taken: from
    sum p = k follows dp/ds = diag(v) - v v^T / sum v with v = p (1 - p). At k = N all are 1, with no
    gradient. The threshold is found in float64; p has the dtype of the scores.

    Raises:
        ValueError: k is not in 1..N, or a score is NaN or infinite.
    """
    check_budget(k, scores.shape[-1])
    check_finite("scores", scores)
    return _SoftTopK.apply(scores, k)


class _SoftTopK(torch.autograd.Function):
    """Bisection forward; the implicit derivative backward."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, k: int) -> Tensor:
        n = scores.shape[-1]
        wide = scores.double()
        # At t = edge - max no p exceeds k/N, so the sum is at most k; at edge - min it is at least k.
        edge = math.log(k / (n - k)) if k < n else math.inf
        low = edge - wide.amax(-1, keepdim=True)
        high = edge - wide.amin(-1, keepdim=True)
        for _ in range(64):
            middle = (low + high) / 2
            short = (wide + middle).sigmoid().sum(-1, keepdim=True) < k
            low, high = torch.where(short, middle, low), torch.where(short, high, middle)
        p = (wide + high).sigmoid().to(scores.dtype)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (p,) = ctx.saved_tensors
        (grad,) = grads
        v = p * (1 - p)
        total = v.sum(-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)  # 0 only where every v is
        return v * (grad - (v * grad).sum(-1, keepdim=True) / total), None
