"""Checks, exact budgets, cosine distances and full frames, shared by the methods for clips.

Rules raise ValueError for a bad shape or budget and for NaN or infinity; a mask has exactly
min(budget, T * N) cells; ties go to the earlier frame, then to the lower cell in raster order.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.attending import even_grid
from arr_coc_lab.rivals.reduction import check_finite


def check_count(budget: int) -> None:
    """Raise ValueError unless a budget is a count of at least 1."""
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
        raise ValueError(f"cannot keep {budget!r} tokens of a clip; use a count of at least 1")


def check_grid(grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the grid; ValueError unless it has at least one cell."""
    if len(grid) != 3 or min(grid) < 1:
        raise ValueError(f"grid {grid!r} has no cells; pass (T, H, W) of at least 1 each")
    return grid


def check_clip(features: Tensor, budget: int, attention: Tensor | None = None) -> tuple[int, int]:
    """(T, N) of a clip with features [T, N, D] and attention [T, N]; ValueError as every rule raises it."""
    if features.ndim != 3 or 0 in features.shape:
        raise ValueError(
            f"features have shape {tuple(features.shape)}; pass [T, N, D], the encoded cells of each frame"
        )
    check_count(budget)
    check_finite("features", features)
    t, n, _ = features.shape
    if attention is not None:
        if attention.shape != (t, n):
            raise ValueError(
                f"attention has shape {tuple(attention.shape)}; pass [{t}, {n}], one value for each cell"
            )
        check_finite("attention", attention)
        if bool((attention < 0).any()):
            raise ValueError(f"attention has {float(attention.min())}; pass probabilities, not logits")
    return t, n


def apart(a: Tensor, b: Tensor) -> Tensor:
    """1 - cosine of vectors along the last dimension, broadcast, float32, in [0, 2]; 1 from zeros."""
    a, b = a.float(), b.float()
    # half the squared distance of unit vectors is exactly 0 for equal ones: a tie, not rounding order
    half = (F.normalize(a, dim=-1) - F.normalize(b, dim=-1)).square().sum(-1) / 2
    nothing = (a == 0).all(-1) | (b == 0).all(-1)
    return torch.where(nothing, torch.ones_like(half), half)


def lowest(cost: Tensor, budget: int, tier: Tensor | None = None) -> Tensor:
    """Return the cells of the lowest cost, [T, N] -> Bool [T, N]; those of a lower `tier` [T, N] first."""
    order = cost.flatten().argsort(stable=True)
    if tier is not None:
        order = order[tier.flatten()[order].argsort(stable=True)]
    mask = torch.zeros(cost.numel(), dtype=torch.bool, device=cost.device)
    mask[order[:budget]] = True
    return mask.view(cost.shape)


def best_of_each(scores: Tensor, counts: Tensor) -> Tensor:
    """Return the cells of the highest scores of each frame, [T, N] and counts [T] -> Bool [T, N]."""
    # rank of each cell in its frame
    ranks = scores.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return ranks < counts[:, None].to(ranks.device)


def equal_counts(steps: int, total: int) -> Tensor:
    """`total` cells shared equally among frames, Long [T]; the remainder goes to spread frames."""
    edges = torch.arange(steps + 1) * total // steps  # cumulative shares, rounded down
    return edges.diff()


def apportion(weights: Tensor, total: int, most: int | Tensor, least: int = 0) -> Tensor:
    """`total` cells shared in proportion to weights [T] by the largest remainder -> Long [T].

    All-zero weights count as equal. `most` is what a frame can take (a number or [T]); what a full frame
    can't take is shared among the others in proportion. `least` is what every frame gets first, if the total
    pays it.
    """
    weights = weights.detach().double().cpu()  # float64: shares of 1e5 cells stay exact
    room = torch.as_tensor(most).double().cpu().expand(len(weights)).clone()
    base = torch.full_like(room, float(least)).minimum(room)
    if float(base.sum()) > total:
        base.zero_()
    room -= base
    rest = total - float(base.sum())
    free = torch.ones_like(room, dtype=torch.bool)
    while True:
        part = weights * free
        if float(part.sum()) == 0:
            part = free.double()
        share = torch.where(free, part / part.sum().clamp_min(1e-300) * (rest - room[~free].sum()), room)
        over = free & (share > room)
        if not bool(over.any()):
            break
        free &= ~over
    counts = share.floor().minimum(room)
    while (short := round(rest - float(counts.sum()))) > 0:
        fraction = (share - counts).masked_fill(counts >= room, -torch.inf)
        order = fraction.argsort(descending=True, stable=True)
        counts[order[: min(short, int((counts < room).sum()))]] += 1
    return (base + counts).long()


def whole_frames(order: Tensor, grid: tuple[int, int, int], budget: int) -> Tensor:
    """Full frames in an order of choice [T], as many as a budget pays, then spread cells of the next one."""
    t, h, w = grid
    mask = torch.zeros(t, h * w, dtype=torch.bool, device=order.device)
    count, over = divmod(min(budget, t * h * w), h * w)
    mask[order[:count]] = True
    if over:
        mask[order[count], even_grid((h, w), over, order.device)] = True
    return mask
