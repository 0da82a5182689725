"""Null methods that read no question (random, even, cut off, most print), and bounds that read evidence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from arr_coc.choose.attending import even_grid
from arr_coc_lab.rivals.method import ImageView, Method, register
from arr_coc_lab.rivals.reduction import Reduction, check_budget, top_k


def random(n: int, k: int, generator: torch.Generator) -> Reduction:
    """Any k of n tokens, every subset equally likely."""
    check_budget(k, n)
    return Reduction(_draw(n, k, generator).sort().values)


def even(grid: tuple[int, int], k: int, device: torch.device | str = "cpu") -> Reduction:
    """Return the k tokens spread evenly over an (H, W) grid."""
    check_budget(k, grid[0] * grid[1])
    return Reduction(even_grid(grid, k, device))


def first(n: int, k: int, device: torch.device | str = "cpu") -> Reduction:
    """Return the first k of n tokens in raster order, a page cut off."""
    check_budget(k, n)
    return Reduction(torch.arange(k, device=device))


def ink_density(pixels: Tensor, grid: tuple[int, int]) -> Tensor:
    """Mean difference of each cell's pixels from its median shade, high on print, [3, h, w] -> [H, W]."""
    light = pixels.mean(0)[None, None]  # (1, 1, h, w)
    fine = torch.nn.functional.interpolate(light, (16 * grid[0], 16 * grid[1]), mode="area")[0, 0]
    cells = fine.unfold(0, 16, 16).unfold(1, 16, 16).flatten(2)  # (H, W, 256)
    return (cells - cells.median(-1, keepdim=True).values).abs().mean(-1)


def oracle(evidence: Tensor, k: int, generator: torch.Generator | None = None) -> Reduction:
    """Return the upper bound of choosing: the tokens that hold the answer, filled up with others.

    `evidence` is bool [H, W], or [N]. Of more than k evidence tokens an even subset is kept. The fill is an
    even grid (along the raster for [N]), or random with a `generator`.
    """
    if evidence.dtype != torch.bool:
        raise ValueError(f"evidence is {evidence.dtype}; pass booleans, such as evidence > 0.5")
    n = evidence.numel()
    check_budget(k, n)
    h, w = evidence.shape if evidence.ndim == 2 else (1, n)
    evidence = evidence.flatten()
    certain = evidence.nonzero().flatten()
    if len(certain) >= k:
        return Reduction(certain[_evenly(len(certain), k, evidence.device)])
    missing = k - len(certain)
    if generator is None:
        fill = _even_fill(evidence, (h, w), missing)
    else:
        rest = (~evidence).nonzero().flatten()
        fill = rest[_draw(len(rest), missing, generator).to(rest.device)]
    return Reduction(torch.cat((certain, fill)).sort().values)


def blind_oracle(evidences: Sequence[Tensor], k: int) -> Reduction:
    """Return the upper bound of choosing without the question: one set of cells for all evidence, bool [H,
    W] each.

    Greedy maximum coverage: always the question whose missing cells complete the most questions per cell, of
    those that fit; then an even fill.
    """
    if not evidences or any(one.dtype != torch.bool or one.shape != evidences[0].shape for one in evidences):
        raise ValueError("pass at least one question's evidence, all boolean and of one shape")
    grid = (evidences[0].shape[0], evidences[0].shape[1])
    check_budget(k, evidences[0].numel())
    wanted = torch.stack([one.flatten() for one in evidences])  # (Q, N)
    taken = torch.zeros_like(wanted[0])
    while True:
        missing = (wanted & ~taken).float()
        cells = missing.sum(1)  # (Q,), what each question lacks
        fits = (cells > 0) & (cells <= k - int(taken.sum()))
        if not bool(fits.any()):
            break
        # [a, b]: cells that b lacks and a does not bring; where there are none, a completes b as well.
        left = (cells[None] - missing @ missing.T).masked_fill(cells[None] == 0, 1)
        gain = (left == 0).sum(1) / cells.clamp_min(1)  # (Q,), questions completed per cell spent
        taken |= wanted[int(gain.masked_fill(~fits, -1).argmax())]
    certain = taken.nonzero().flatten()
    fill = _even_fill(taken, grid, k - len(certain)) if len(certain) < k else certain[:0]
    return Reduction(torch.cat((certain, fill)).sort().values)


def _even_fill(evidence: Tensor, grid: tuple[int, int], count: int) -> Tensor:
    """`count` cells off the evidence: those of the coarsest even grid tried that has as many there."""
    size = count
    while True:
        cells = even_grid(grid, size, evidence.device)
        free = cells[~evidence[cells]]
        if len(free) >= count:
            return free[_evenly(len(free), count, free.device)]
        size = min(len(evidence), size + count - len(free))  # grows, and the whole grid is enough


def _evenly(n: int, count: int, device: torch.device) -> Tensor:
    """`count` of 0..n-1, evenly spaced, rising."""
    return even_grid((1, n), count, device)


def _draw(n: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(n, generator=generator, device=generator.device)[:count]


def select_random(view: ImageView, i: int, k: int) -> Reduction:
    """`random` cells of an image, drawn anew for each question."""
    return random(view.total, k, view.generator("random", i))


def select_ink(view: ImageView, i: int, k: int) -> Reduction:
    """Return the k cells of an image that have most ink."""
    check_budget(k, view.total)
    scores = ink_density(view.picture.float(), view.grid[1:]).flatten()
    return Reduction(top_k(scores, k).sort().values)


def select_oracle(view: ImageView, i: int, k: int) -> Reduction:
    """Return the `oracle`'s cells of an image; an even grid where there is no evidence."""
    evidence = view.evidence(i)
    return even(view.grid[1:], k) if evidence is None else oracle(evidence, k)


def select_blind_oracle(view: ImageView, i: int, k: int) -> Reduction:
    """Return the `blind_oracle`'s cells of an image; an even grid where no question has evidence."""
    evidences = view.possible_evidence()
    return blind_oracle(evidences, k) if evidences else even(view.grid[1:], k)


register(Method("random", "null", select_random, by_question=True, contender=True))
register(
    Method(
        "even grid",
        "null",
        lambda view, i, k: even(view.grid[1:], k),
        contender=True,
    )
)
register(
    Method(
        "truncation",
        "null",
        lambda view, i, k: first(view.total, k),
        label="the top of the page, in as many tokens",
    )
)

register(Method("ink density", "null", select_ink))
register(Method("oracle", "bound", select_oracle, by_question=True))
register(Method("blind oracle", "bound", select_blind_oracle))
