"""Relaxation: a differentiable top-k, for losses and estimators that need the derivative of a selection.

    soft_top_k(scores [..., N], k) -> probabilities [..., N] that sum to k

Tensors only; the hard selection is made in `attending`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def soft_top_k(scores: Tensor, k: int) -> Tensor:
    """The probabilities of being kept, which sum to k, [..., N] -> [..., N], differentiable in the scores.

    They are p = sigmoid(s + t), with the threshold t by bisection in float64. The gradient is exact and does
    not depend on the steps taken: from sum p = k follows dp/ds = diag(v) - v v^T / sum v with v = p (1 - p).
    At k = N all are 1, with no gradient. p has the dtype of the scores.

    Raises:
        ValueError: k is not in 1..N, or a score is NaN or infinite.
    """
    n = scores.shape[-1]
    if not isinstance(k, int) or not 1 <= k <= n:
        raise ValueError(f"cannot keep {k!r} of {n} tokens; use a count from 1 to {n}")
    bad = int((~scores.isfinite()).sum())
    if bad:
        raise ValueError(
            f"scores has {bad} NaN or infinite values of {scores.numel()}; compute scores again in float32"
        )
    return _SoftTopK.apply(scores, k)


class _SoftTopK(torch.autograd.Function):
    """The autograd function of `soft_top_k`: bisection forward, the implicit derivative backward."""

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
