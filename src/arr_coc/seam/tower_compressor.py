"""Compression inside the vision tower: its first blocks on local windows, fewer patches for the rest.

    tower4, tower16     2x2 or 4x4 patches become one after the first blocks

The order is DeepSeek-OCR's (Wei et al. 2025, arXiv 2510.18234); here both parts are the model's own blocks.
The merging is trained, and a LoRA of the tower by the compressor's name.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.choose.knowing import same_start
from arr_coc.seam.assembly import VisualFeatures
from arr_coc.seam.loaded import refresh, twin

SIDES = {4: 2, 16: 4}  # cells along each side of a block, by its number of cells


class Halvings(nn.Module):
    """Strided 3x3 convolutions that each halve both sides, then a linear layer initialised to zero.

    `times` convolutions with `width` channels between them, on tokens of width `dim`.
    """

    def __init__(self, dim: int, width: int, times: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(width if i else dim, width, 3, stride=2, padding=1) for i in range(times)
        )
        self.head = nn.Conv2d(width, dim, 1)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """[T, D, H, W], any sides -> [T, D, ceil(H / 2^times), ...], in the dtype of the parameters."""
        # Padded at both ends to a multiple of the stride.
        side = 2 ** len(self.convs)
        more = [-length % side for length in (x.shape[-1], x.shape[-2])]
        edges = [amount for m in more for amount in (m // 2, m - m // 2)]
        x = F.pad(x.to(self.head.weight.dtype), edges, mode="replicate")
        for conv in self.convs:
            x = F.gelu(conv(x))
        return self.head(x)


# ---- the two halves of a tower

DEPTHS = ("deepstack_visual_indexes", "fullatt_block_indexes")  # attributes that number a tower's blocks
LEVEL_MERGERS = ("deepstack_merger_list", "merger_list")  # of deepstack levels; second: Qwen3-Omni's

_HALVES: weakref.WeakKeyDictionary[nn.Module, dict[int, tuple[nn.Module, nn.Module]]]
_HALVES = weakref.WeakKeyDictionary()


class Folded(nn.Module):
    """A module in a merger's place: puts a cell's patches side by side, [N * unit, D] -> [N, unit * D]."""

    def __init__(self, unit: int) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self.unit * x.shape[-1])


class NoPlaces(nn.Module):
    """A module in the place of learned position embeddings: zeros, for patches that have theirs already."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, indices: Tensor) -> Tensor:
        return torch.zeros(*indices.shape, self.dim, device=indices.device)


def usual_first(tower: Any) -> int:
    """Return the default number of blocks of a lower half: up to the first whose output is a deepstack level.

    Where there is none: those before the first that attends to the whole image, else a quarter; at least one.
    """
    depth = len(tower.blocks)
    levels, whole = (getattr(tower, name, None) or () for name in DEPTHS)
    first = min(levels) + 1 if levels else min(whole, default=depth // 4)
    return min(max(1, first), depth - 1)


def level_mergers(tower: Any, first: int) -> list[nn.Module]:
    """Return the mergers of the deepstack levels that the first blocks have; they read the lower half's
    output.
    """
    marks = getattr(tower, DEPTHS[0], None) or ()
    return [tower.deepstack_merger_list[i] for i, mark in enumerate(marks) if mark < first]


def tower_halves(tower: nn.Module, first: int) -> tuple[nn.Module, nn.Module]:
    """Return the two halves of a vision tower, made once over its weights: `first` blocks without merger,
    the rest.

    The lower half returns each cell's patches side by side; the upper takes patches of that depth.
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


# ---- the compressor

TOWERS = {"tower4": 4, "tower16": 16}  # compressors in a tower, and how many cells become one token
WINDOW_CELLS = 8  # along each side of a local window: 256 px of Qwen3-VL
MAX_CHANNELS = 512  # between the convolutions


class TowerCompressor(nn.Module):
    """A learned compressor inside a tower: the block average of patches plus a convolutional net's output.

    `factor` (4 or 16) patches of width `dim` become one, after `first` blocks on windows of `window` cells a
    side.
    """

    def __init__(self, dim: int, factor: int, first: int, window: int = WINDOW_CELLS) -> None:
        super().__init__()
        if factor not in SIDES:
            raise ValueError(f"factor {factor} is not one a compressor has; use one of {list(SIDES)}")
        if first < 1 or window < 1:
            raise ValueError(f"first is {first} and window {window}; use at least one block and one cell")
        self.dim, self.factor, self.first, self.window = dim, factor, first, window
        with same_start():
            self.norm = nn.LayerNorm(dim)
            self.net = Halvings(dim, min(dim, MAX_CHANNELS), SIDES[factor] // 2)

    @classmethod
    def of(cls, tower: Any, factor: int) -> TowerCompressor:
        """Return an untrained compressor for a vision tower, on its device, after the default number of
        blocks.
        """
        weight = tower.blocks[0].norm1.weight
        return cls(len(weight), factor, usual_first(tower)).to(weight.device)

    def forward(self, adapter: Any, inputs: Mapping[str, Any]) -> VisualFeatures:
        """Encodes every image to coarse tokens with a `FamilyAdapter`, of the base or a copy with LoRAs."""
        return adapter.encode_merged(inputs, self)

    def merge(self, patches: Tensor, merge: int) -> Tensor:
        """Shrinks an image's patches by `factor`.

        [T, D, H * merge, W * merge] -> [T, D, h * merge, w * merge]; h = H / sqrt(factor), rounded up,
        likewise w. Average pooling plus the learned net. `merge`: patches along a cell's side.
        """
        if patches.shape[1] != self.dim:
            raise ValueError(
                f"this compressor is for a vision tower of width {self.dim}, but this one has "
                f"{patches.shape[1]}; train one for this model or use 'resize'"
            )
        side = SIDES[self.factor]
        more = [-length % (side * merge) for length in (patches.shape[-1], patches.shape[-2])]
        edges = [amount for m in more for amount in (m // 2, m - m // 2)]
        x = F.pad(patches.to(self.norm.weight.dtype), edges, mode="replicate")
        even = self.norm(x.movedim(1, -1)).movedim(-1, 1)  # over D
        return (F.avg_pool2d(x, side) + self.net(even)).to(patches.dtype)
