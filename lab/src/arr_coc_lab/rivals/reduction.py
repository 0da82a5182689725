"""The result type of every selection rule, and arithmetic that several rules share.

Rules raise ValueError where k is not in 1..N, numbers of tokens differ, or a value is NaN or infinite. Ties
go to the lower index, and so does what rounding alone tells apart: no processor's order of sums chooses a
token. N visual tokens, K = k kept, L tokens of the question, D width of the language model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.allocation import Allocation

ROUNDING = 1e-6
"""Share of the largest term by which sums in float32 of the same terms may differ."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """The tokens kept of one image: `keep` long [K], rising indices among the image's N tokens.

    `tokens` [K, D] holds the kept tokens where the rule changes them by merging; None where it only gathers.
    `allocation` is the record of a choice that made one.
    """

    keep: Tensor
    tokens: Tensor | None = None
    allocation: Allocation | None = None


def check_budget(k: int, n: int) -> None:
    """Raise ValueError unless k is a count from 1 to n."""
    if not isinstance(k, int) or not 1 <= k <= n:
        raise ValueError(f"cannot keep {k!r} of {n} tokens; use a count from 1 to {n}")


def check_finite(name: str, values: Tensor) -> None:
    """Raise ValueError where `values` hold NaN or infinity."""
    bad = ~values.isfinite()
    if bool(bad.any()):
        place = bad.nonzero()[0].tolist()
        raise ValueError(
            f"{name} has {int(bad.sum())} NaN or infinite values of {values.numel()}, the first is "
            f"{values[tuple(place)].item()} at {place}; compute {name} again in float32 or bfloat16"
        )


def check_inputs(k: int, **per_token: Tensor) -> int:
    """Return the number of tokens N; ValueError as every rule raises it."""
    sizes = {name: len(values) for name, values in per_token.items()}
    n = next(iter(sizes.values()))
    if any(size != n for size in sizes.values()):
        raise ValueError(f"numbers of tokens differ: {sizes}; pass one row for each token of one image")
    check_budget(k, n)
    for name, values in per_token.items():
        check_finite(name, values)
    return n


def check_question(question: Tensor, tokens: Tensor) -> None:
    """Raise ValueError unless `question` is [L, D], finite, at least one token, as wide as `tokens`."""
    width = tokens.shape[-1]
    if question.ndim != 2 or len(question) == 0 or question.shape[-1] != width:
        raise ValueError(
            f"question has shape {tuple(question.shape)}; pass [L, {width}], the embeddings of at least "
            "one token of the question, as wide as the visual tokens"
        )
    check_finite("question", question)


def cosine(rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """Cosine similarities in float32, [R, D] and [C, D] -> [R, C]; among the rows without `columns`."""
    unit = F.normalize(rows.float(), dim=-1)  # zeros stay zeros: similarity 0 to all
    return unit @ (unit if columns is None else F.normalize(columns.float(), dim=-1)).T


def min_max(values: Tensor, floor: float = 0.0) -> Tensor:
    """(values - min + floor) / (max - min), [N] -> [N]; ones where all are equal but for rounding."""
    low, high = values.aminmax()
    spread = high - low > ROUNDING * values.abs().max()
    return (values - low + floor) / (high - low) if bool(spread) else torch.ones_like(values)


def highest(scores: Tensor, rounding: float = ROUNDING) -> int:
    """Return the lower index of those of `scores` [N] that are the highest, or less by no more than
    `rounding`.
    """
    return int((scores >= scores.max() - rounding).int().argmax())


def top_k(scores: Tensor, k: int) -> Tensor:
    """Indices [k] of the highest of `scores` [N], best first; ties go to the lower index."""
    return scores.argsort(descending=True, stable=True)[:k]  # torch.topk is not stable


def greedy_cover(worth: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
    """Greedy facility location, in O(k N R): long [k] candidates in the order of choice.

        j* = argmax_j weight_j * sum_r max(0, worth_jr - best_r);  best = max(best, worth_j*);  best = 0 first

    `worth` [N, R] is how well candidate j serves demand r; `weight` [N], at least 0, scales its gain.
    """
    n, demands = worth.shape
    best = worth.new_zeros(demands)  # (R,), how well each demand is served
    taken = torch.zeros(n, dtype=torch.bool, device=worth.device)
    gap = torch.empty_like(worth)  # one buffer: a fresh N x R per step would cost more than the arithmetic
    order: list[int] = []
    rounding = 0.0
    for _ in range(k):
        gain = torch.sub(worth, best, out=gap).clamp_(min=0).sum(1)  # (N,)
        if weight is not None:
            gain = gain * weight
        rounding = rounding or ROUNDING * float(gain.max())  # of the first gains, the largest sums
        pick = highest(gain.masked_fill_(taken, -1), rounding)
        order.append(pick)
        taken[pick] = True
        best = torch.maximum(best, worth[pick])
    return torch.tensor(order, device=worth.device)
