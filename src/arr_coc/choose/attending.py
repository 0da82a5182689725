"""Attending: the choice of the cells that are kept, from one relevance map per image.

    TokenAllocator(...)(scores [B, H, W], budget) -> one Selection(keep [K], order [K], ...) per image

Laws: indices are unique and in raster order; ties go to the earlier cell; a budget is spent exactly; each
image is decided alone. No gradient passes a selection: `gate` carries it, `soft_top_k` is a relaxation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from arr_coc.choose.allocation import Reason
from arr_coc.choose.balancing import MAX_EXPLORE, explore_share
from arr_coc.choose.budget import Budget, count_cells

# Thresholds of structure in an image. Measured autocorrelation: noise 0.03, splatter 0.22, pages 0.4;
# measured alignment: noise 1.0, 260 splatters at most 3.5, icons under each other 4.4 and more.
STRUCTURE_CORRELATION = 0.25  # autocorrelation two cells apart
STRUCTURE_ALIGNMENT = 3.9  # alignment with rows and columns
ALIGNMENT_CAP = 0.1  # information is cut off here before: a few strong cells would outweigh the layout
FEW_CELLS = 192  # with fewer, autocorrelation says little: it was too low for a third of drawn 8x8 pages


class NonFiniteScores(ValueError):
    """Scores that contain NaN or infinity, so that they have no ranking."""


class Selection(NamedTuple):
    """The kept cells of one image, and why each was kept."""

    keep: Tensor  # long [K], in raster order
    order: Tensor  # the same, most relevant first
    reasons: Tensor  # long [K], a `Reason` for each of `keep`
    void: bool  # an even grid, because the image had no structure

    def __repr__(self) -> str:
        return f"Selection({len(self.keep):,} cells{', void' * self.void})"


def compute_retention_mask(scores: Tensor, count: int) -> Tensor:
    """Return a bool mask of the `count` highest of `scores` [..., N] or [B, H, W]; ties go to the earlier
    cell.

    `NonFiniteScores` if a score is NaN or infinite, a ValueError if `count` is not in 1..N.
    """
    flat = scores.flatten(1) if scores.ndim > 2 else scores
    if not 1 <= count <= flat.shape[-1]:
        raise ValueError(f"cannot keep {count} of {flat.shape[-1]} tokens; use 1 to {flat.shape[-1]}")
    top = _ranked(flat)[..., :count]
    return torch.zeros_like(flat, dtype=torch.bool).scatter(-1, top, True).view(scores.shape)


def _ranked(scores: Tensor) -> Tensor:
    bad = int((~scores.isfinite()).sum())
    if bad:
        raise NonFiniteScores(
            f"{bad} of {scores.numel()} scores are NaN or infinite; check the inputs of the scorers"
        )
    return scores.argsort(dim=-1, descending=True, stable=True)


def gate(scores: Tensor) -> Tensor:
    """Return a factor of exactly 1 for every score, with the gradient of log(score), in the shape of
    `scores`.

    Kept features multiplied by it stay the same, and a loss behind a frozen model trains their scores.
    """
    safe = scores.clamp_min(1e-6)  # a score of 0 would be 0 / 0
    return safe / safe.detach()


def even_grid(grid: tuple[int, int], count: int, device: torch.device | str = "cpu") -> Tensor:
    """Flat indices [count], rising, of cells spread evenly over an (H, W) grid.

    A ValueError if count is not in 1..H*W.
    """
    h, w = grid
    if not 1 <= count <= h * w:
        raise ValueError(f"cannot spread {count} cells over a grid of {h}x{w}; use 1 to {h * w}")
    # As many rows as suit the grid's shape, cells divided evenly among them, columns evenly within each.
    rows = max(-(-count // w), min(h, count, round(math.sqrt(count * h / w))))
    i = torch.arange(count, device=device)
    row = i * rows // count
    first = -(-row * count // rows)  # index of the row's first cell
    size = -(-(row + 1) * count // rows) - first  # cells in this row, at most w
    y = (2 * row + 1) * h // (2 * rows)
    x = (2 * (i - first) + 1) * w // (2 * size)
    return y * w + x


def spread_order(grid: tuple[int, int], device: torch.device | str = "cpu") -> Tensor:
    """Return the ranks [H*W] of all cells in an order of which every prefix covers the grid (Bayer 1973)."""
    h, w = grid
    y, x = torch.meshgrid(torch.arange(h, device=device), torch.arange(w, device=device), indexing="ij")
    # The bits of x ^ y and y in reverse order are the recursive Bayer matrix.
    key = torch.zeros_like(y)
    for bit in range(max(h, w).bit_length()):
        key = key * 4 + 2 * ((x ^ y) >> bit & 1) + (y >> bit & 1)
    return key.flatten().argsort(stable=True).argsort()


def coverage(kept: Tensor, count: int, grid: tuple[int, int]) -> Tensor:
    """Flat indices of `count` evenly spread cells, those away from `kept` (bool [H*W]) first."""
    # Cells without a kept neighbour come first, kept ones last.
    near = F.max_pool2d(kept.view(1, 1, *grid).float(), 3, 1, padding=1).flatten() > 0
    cost = spread_order(grid, kept.device) + near * kept.numel() + kept * 2 * kept.numel()
    return cost.argsort(stable=True)[:count]


def has_structure(information: Tensor, colour: Tensor) -> Tensor:
    """Return whether an image has structure, so that some cells can be preferred: bool [B].

    `information` [B, c, H, W] is `cell_information`, `colour` [B, 0 to 3, H, W] the mean colour of cells.

    Pages and photographs have it (autocorrelation of information or colour two cells apart), as have rows and
    columns of icons, and one word on a blank page; noise and blank pages do not.
    """
    information = information.mean(1, keepdim=True)
    busy = information.flatten(1)
    correlations = [_autocorrelation(m) for m in (information, colour) if m.shape[1]]
    coherent = torch.stack(correlations).amax(0) > STRUCTURE_CORRELATION
    sparse = (busy.median(1).values < 0.02) & (busy.amax(1) > 0.03) & ((busy > 0.05).float().mean(1) < 0.2)
    aligned = _alignment(information[:, 0].clamp(max=ALIGNMENT_CAP)) > STRUCTURE_ALIGNMENT
    return (busy.amax(1) > 0.01) & (coherent | aligned | sparse | (busy.shape[1] < FEW_CELLS))


def _alignment(maps: Tensor) -> Tensor:
    """Return how far the rows of a map differ, and its columns, [B, H, W] -> [B]: 1 if cells are
    independent.
    """
    # For rows and columns each: the variance of the means times the cells in a mean, as a share of the
    # variance of all cells (the correlation ratio of an analysis of variance). Then their geometric mean.
    variance = maps.flatten(1).var(1, correction=0).clamp_min(1e-9)
    rows, columns = (maps.mean(dim).var(1, correction=0) * maps.shape[dim] for dim in (2, 1))
    return (rows * columns).sqrt() / variance


def _autocorrelation(maps: Tensor, lag: int = 2) -> Tensor:
    """Return the correlation of cells `lag` apart, [B, c, H, W] -> [B]; 0 for a constant map."""
    centred = maps - maps.mean((-2, -1), keepdim=True)
    across = (centred[..., lag:] * centred[..., :-lag]).flatten(1)
    down = (centred[..., lag:, :] * centred[..., :-lag, :]).flatten(1)
    together = (across.sum(1) + down.sum(1)) / max(1, across.shape[1] + down.shape[1])
    return together / centred.square().flatten(1).mean(1).clamp_min(1e-9)


@dataclass(frozen=True)
class TokenAllocator:
    """The rule that decides which cells of each image are kept, given their scores and a budget."""

    explore: float = 0.0  # share of the budget for coverage at neutral exploit, 0 to MAX_EXPLORE

    def __post_init__(self) -> None:
        if not 0 <= self.explore <= MAX_EXPLORE:
            raise ValueError(f"explore {self.explore} must be a share of the budget in [0, {MAX_EXPLORE}]")

    def __call__(
        self,
        scores: Tensor,
        budget: Budget | None = None,
        *,
        compress: Tensor | None = None,
        exploit: Tensor | None = None,
        void: Tensor | None = None,
        explore: Tensor | None = None,
        needed: Tensor | None = None,
    ) -> list[Selection]:
        """Select cells of each image from finite scores [B, H, W]; `NonFiniteScores` otherwise.

        `budget` is a count, a fraction, "auto" (which reads scores in [0, 1]) or None for at most
        DEFAULT_BUDGET. `compress`, `exploit` [B] in [0, 1] are tensions, 0.5 neutral; `void` bool [B] marks
        images to sample by an even grid; `explore` [B] replaces the allocator's own share; `needed` [B] as in
        `count_cells`.
        """
        size, h, w = scores.shape
        flat = scores.detach().flatten(1)
        ranked = _ranked(flat)
        neutral = torch.full((size,), 0.5, dtype=torch.float32, device=flat.device)
        counts = count_cells(budget, flat, neutral if compress is None else compress, needed)
        share = self.explore if explore is None else explore
        shares = explore_share(share, neutral if exploit is None else exploit).tolist()
        voids = [False] * size if void is None else void.tolist()
        images = zip(ranked, counts, shares, voids, strict=True)
        return [_select(*image, (h, w)) for image in images]


def _select(ranked: Tensor, count: int, share: float, void: bool, grid: tuple[int, int]) -> Selection:
    reason = torch.full_like(ranked, -1)
    if count == len(ranked):
        reason[:], void = Reason.ALL, False
    elif void:
        reason[even_grid(grid, count, ranked.device)] = Reason.VOID
    else:
        # At least one cell is chosen by relevance.
        explored = min(count - 1, math.floor(share * count + 0.5))
        reason[ranked[: count - explored]] = Reason.RELEVANT
        reason[coverage(reason >= 0, explored, grid)] = Reason.EXPLORED
    keep = (reason >= 0).nonzero().flatten()  # in raster order
    return Selection(keep, ranked[reason[ranked] >= 0], reason[keep], void)


def soft_top_k(scores: Tensor, k: int) -> Tensor:
    """Return the probabilities of being kept, which sum to k, [..., N] -> [..., N], differentiable in the
    scores.

    They are sigmoid(s + t), with the threshold t by bisection in float64; all 1 without gradient at k = N. A
    ValueError if k is not in 1..N, or a score is NaN or infinite.
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
        # Exact whatever steps were taken: from sum p = k follows dp/ds = diag(v) - v v^T / sum v.
        v = p * (1 - p)
        total = v.sum(-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)  # 0 only where every v is
        return v * (grad - (v * grad).sum(-1, keepdim=True) / total), None
