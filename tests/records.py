"""Allocation records of random maps, for tests of what is drawn from them."""

from __future__ import annotations

import torch

from arr_coc.choose.allocation import Allocation, Reason, grid_positions


def record(
    height: int,
    width: int,
    kept: int,
    *,
    frames: int = 1,
    seed: int = 0,
    reason: Reason = Reason.RELEVANT,
    tensions: tuple[float, float, float] = (0.5, 0.5, 0.5),
) -> Allocation:
    """The `kept` most relevant cells, all for one reason."""
    grid = (frames, height, width)
    maps = torch.rand(4, *grid, generator=torch.Generator().manual_seed(seed))
    order = maps[3].flatten().argsort(descending=True, stable=True)[:kept]
    keep = order.sort().values
    return Allocation(
        grid=grid,
        keep=keep,
        order=order,
        positions=grid_positions(keep, grid),
        information=maps[0],
        perspectival=maps[1],
        participatory=maps[2],
        balanced=maps[3],
        weights=torch.tensor([0.53, 0.31, 0.88]),
        tensions=dict(zip(("compress", "exploit", "focus"), tensions, strict=True)),
        budget=kept,
        reasons=torch.full_like(keep, int(reason)),
        void=reason == Reason.VOID,
    )
