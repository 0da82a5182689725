"""The two halves of a vision tower: its first blocks, and the rest of them on fewer patches.

    lower, upper = tower_halves(tower, first=5)
    lower(pixel_values, grid_thw=...).pooler_output     per cell its patches side by side, unmerged
    upper(patches, grid_thw=...)                        as the whole tower, from patches of that depth

Both are twins of the tower (`seam.twin`): modules of their own over the same weights, run by the tower's
own `forward`. Only what is at their ends differs: the lower half has no merger, the upper half takes
patches as they are.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from arr_coc.seam.twin import refresh, twin

DEPTHS = ("deepstack_visual_indexes", "fullatt_block_indexes")
"""Attributes of towers that number their blocks."""
LEVEL_MERGERS = ("deepstack_merger_list", "merger_list")
"""Their mergers of deepstack levels, one for each; the second name is Qwen3-Omni's."""

_HALVES: weakref.WeakKeyDictionary[nn.Module, dict[int, tuple[nn.Module, nn.Module]]]
_HALVES = weakref.WeakKeyDictionary()


class Folded(nn.Module):
    """In place of a merger: the patches of each cell side by side, [N * unit, D] -> [N, unit * D]."""

    def __init__(self, unit: int) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self.unit * x.shape[-1])


class NoPlaces(nn.Module):
    """In place of learned positions: zeros, for patches that have theirs already."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, indices: Tensor) -> Tensor:
        return torch.zeros(*indices.shape, self.dim, device=indices.device)


def usual_first(tower: Any) -> int:
    """How many blocks a lower half usually has: up to the first whose output is a deepstack level.

    Where there is none: those before the first that sees the whole image, else a quarter of the tower; at
    least one block.
    """
    depth = len(tower.blocks)
    levels, whole = (getattr(tower, name, None) or () for name in DEPTHS)
    first = min(levels) + 1 if levels else min(whole, default=depth // 4)
    return min(max(1, first), depth - 1)


def level_mergers(tower: Any, first: int) -> list[nn.Module]:
    """The mergers of the deepstack levels that the first blocks have.

    With `usual_first` there is one, whose level is the output of the lower half itself; of blocks before
    that the level is made of this output as well.
    """
    marks = getattr(tower, DEPTHS[0], None) or ()
    return [tower.deepstack_merger_list[i] for i, mark in enumerate(marks) if mark < first]


def tower_halves(tower: nn.Module, first: int) -> tuple[nn.Module, nn.Module]:
    """The two halves of a tower, made once.

    Args:
        tower: a vision tower with `patch_embed`, `blocks` and `merger`.
        first: blocks of the lower half.

    Raises:
        ValueError: one half would have no block.
    """
    made = _HALVES.setdefault(tower, {})
    if first not in made:
        made[first] = _halved(tower, first)
    lower, upper = made[first]
    return refresh(lower), refresh(upper)


def _halved(tower: Any, first: int) -> tuple[nn.Module, nn.Module]:
    depth = len(tower.blocks)
    if not 1 <= first < depth:
        raise ValueError(
            f"the lower half of this vision tower can't have {first} of its {depth} blocks; use 1 to "
            f"{depth - 1}"
        )
    lower: Any = twin(tower)
    upper: Any = twin(tower)
    lower.blocks, upper.blocks = nn.ModuleList(lower.blocks[:first]), nn.ModuleList(upper.blocks[first:])
    lower.merger, upper.patch_embed = Folded(tower.spatial_merge_size**2), nn.Identity()
    if hasattr(tower, "pos_embed"):
        upper.pos_embed = NoPlaces(tower.pos_embed.embedding_dim)
    for name in DEPTHS:
        if hasattr(tower, name):
            marks = list(getattr(tower, name))
            setattr(lower, name, [mark for mark in marks if mark < first] if name == DEPTHS[1] else [])
            setattr(upper, name, [mark - first for mark in marks if mark >= first])
    for name in LEVEL_MERGERS:
        if name in dict(upper.named_children()):
            early = len(level_mergers(tower, first))
            setattr(upper, name, nn.ModuleList(getattr(upper, name)[early:]))
    return lower, upper
