"""The kept tokens that every rule of this package returns, and the arithmetic that several of them share.

    rule(tensors of one image, k) -> Reduction(keep [K], tokens [K, D] or None)

Laws: `keep` is unique, in bounds and in raster order, and exactly k long; ties go to the lower index;
similarities are computed in float32; no gradient flows; nothing is random but where a generator is passed.

Letters: N visual tokens of one image, K = k kept, L tokens of the question, D width of the language
model, d width of the vision side.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Reduction:
    """What a rule kept of one image.

    Attributes:
        keep: Long [K], indices among the image's N tokens, rising.
        tokens: Float [K, D], the kept tokens in the order of `keep` where the rule changes them by
            merging; None where it only gathers.
    """

    keep: Tensor
    tokens: Tensor | None = None


def check_budget(k: int, n: int) -> None:
    """Raises ValueError unless k is a count from 1 to n."""
    if not isinstance(k, int) or not 1 <= k <= n:
        raise ValueError(f"cannot keep {k!r} of {n} tokens; use a count from 1 to {n}")


def check_finite(name: str, values: Tensor) -> None:
    """Raises ValueError where `values` hold NaN or infinity."""
    bad = ~values.isfinite()
    if bool(bad.any()):
        place = bad.nonzero()[0].tolist()
        raise ValueError(
            f"{name} has {int(bad.sum())} NaN or infinite values of {values.numel()}, the first is "
            f"{values[tuple(place)].item()} at {place}; compute {name} again in float32 or bfloat16"
        )


def check_inputs(k: int, **per_token: Tensor) -> int:
    """The number of tokens N, when the budget and the tensors with one row per token are sound.

    Raises:
        ValueError: the tensors differ in their first dimension, k is not in 1..N, or a value is NaN or
            infinite.
    """
    sizes = {name: len(values) for name, values in per_token.items()}
    n = next(iter(sizes.values()))
    if any(size != n for size in sizes.values()):
        raise ValueError(f"numbers of tokens differ: {sizes}; pass one row for each token of one image")
    check_budget(k, n)
    for name, values in per_token.items():
        check_finite(name, values)
    return n


def check_question(question: Tensor, tokens: Tensor) -> None:
    """Raises ValueError unless `question` is [L, D], finite, at least one token, as wide as `tokens`."""
    width = tokens.shape[-1]
    if question.ndim != 2 or len(question) == 0 or question.shape[-1] != width:
        raise ValueError(
            f"question has shape {tuple(question.shape)}; pass [L, {width}], the embeddings of at least "
            "one token of the question, as wide as the visual tokens"
        )
    check_finite("question", question)


def cosine(rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """Cosine similarities in float32, [R, D] and [C, D] -> [R, C]; without `columns`, among the rows.

    A row of zeros is similar to nothing, itself included.
    """
    unit = F.normalize(rows.float(), dim=-1)
    return unit @ (unit if columns is None else F.normalize(columns.float(), dim=-1)).T


def min_max(values: Tensor, floor: float = 0.0) -> Tensor:
    """(values - min + floor) / (max - min) over one image, [N] -> [N]; ones where all are equal."""
    low, high = values.aminmax()
    return (values - low + floor) / (high - low) if bool(high > low) else torch.ones_like(values)


def top_k(scores: Tensor, k: int) -> Tensor:
    """Indices [k] of the highest of `scores` [N], best first; ties go to the lower index."""
    return scores.argsort(descending=True, stable=True)[:k]


def greedy_cover(worth: Tensor, k: int, weight: Tensor | None = None) -> Tensor:
    """Greedy facility location: k candidates that together serve all demands well.

        j* = argmax_j weight_j * sum_r max(0, worth_jr - best_r);  best = max(best, worth_j*);  best = 0 first

    Args:
        worth: [N, R], how well candidate j serves demand r.
        k: Candidates to choose.
        weight: [N], at least 0, scales the gain of each candidate; None is 1.

    Returns:
        Long [k], in the order of choice. O(k N R).
    """
    n, demands = worth.shape
    best = worth.new_zeros(demands)
    taken = torch.zeros(n, dtype=torch.bool, device=worth.device)
    gap = torch.empty_like(worth)  # one buffer: a fresh N x R per step would cost more than the arithmetic
    order: list[int] = []
    for _ in range(k):
        gain = torch.sub(worth, best, out=gap).clamp_(min=0).sum(1)
        if weight is not None:
            gain = gain * weight
        pick = int(gain.masked_fill_(taken, -1).argmax())
        order.append(pick)
        taken[pick] = True
        best = torch.maximum(best, worth[pick])
    return torch.tensor(order, device=worth.device)
