"""The gestalt: the whole image in few tokens, whatever the question (the COC of ARR-COC).

resize          the encoded tokens of a scaled-down picture, at most 256; nothing fine is encoded
pool4, pool16   the average of each 2x2 or 4x4 block of encoded cells
conv4, conv16   that average plus a learned output of one or two strided convolutions
tower4, tower16 tokens of 4 or 16 cells from a tower that merges patches half-way (`tower_compressor`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from arr_coc.choose.knowing import same_start
from arr_coc.files.saved import check_finite, make_folder, reading, write_tensors
from arr_coc.seam.assembly import CROP_GRIDS, VisualFeatures
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.tower_compressor import SIDES, TOWERS, Halvings, TowerCompressor

CELLS = 256  # most cells of the scaled-down picture of `resize`
MIN_FRAME_CELLS = 4  # least cells of a scaled-down frame, however many a clip has
CONV_WIDTH, CONV_LEVEL_WIDTH = 128, 48  # channels between convolutions: tokens, each deepstack level
CONVS = {"conv4": 4, "conv16": 16}  # learned compressors, and how many cells become one token

Convs = Mapping[str, Any] | nn.ModuleDict  # `ConvCompressor`s and `TowerCompressor`s by name
Coarsening = Callable[[Tensor], Tensor]  # from a grid of tokens [T, D, H, W] to a coarse one [T, D, h, w]


def pool(x: Tensor, factor: int) -> Tensor:
    """Averages blocks of 4 or 16 cells, in the dtype of `x`: [T, D, H, W] -> [T, D, ceil(H / side), ...]."""
    side = SIDES[factor]
    # Where a side doesn't divide, blocks overlap by a cell instead of running over the edge, so that the
    # middle of a block is within half a cell of its token's.
    size = (ceil(x.shape[-2] / side), ceil(x.shape[-1] / side))
    return F.adaptive_avg_pool2d(x.float(), size).to(x.dtype)  # float32: half precision would round the sum


class ConvCompressor(nn.Module):
    """A learned compressor of encoded tokens: the block average plus a net's output, 0 until trained.

    `dim` is the tokens' width D; `factor` (4 or 16) cells become one token; each of the deepstack `levels`
    has a smaller net.
    """

    def __init__(self, dim: int, factor: int, levels: int = 0) -> None:
        super().__init__()
        if factor not in SIDES:
            raise ValueError(f"factor {factor} is not one a compressor has; use one of {list(SIDES)}")
        self.dim, self.factor = dim, factor
        times = SIDES[factor] // 2
        with same_start():
            self.tokens = Halvings(dim, CONV_WIDTH, times)
            self.levels = nn.ModuleList(Halvings(dim, CONV_LEVEL_WIDTH, times) for _ in range(levels))

    def forward(self, features: VisualFeatures) -> VisualFeatures:
        """Compresses every image and level; a ValueError for tokens of another width, or other levels."""
        width, levels = (features.tokens[0].shape[-1] if features.tokens else self.dim, len(features.levels))
        if (width, levels) != (self.dim, len(self.levels)):
            raise ValueError(
                f"this compressor is for tokens of width {self.dim} with {len(self.levels)} deepstack levels "
                f"but these have width {width} and {levels}; train one for this model or use 'pool4' or "
                "'pool16'"
            )

        def pool_plus(net: nn.Module) -> Coarsening:
            return lambda x: pool(x, self.factor) + net(x).to(x.dtype)  # (T, D, H, W) -> (T, D, h, w)

        return coarsen(features, [pool_plus(net) for net in (self.tokens, *self.levels)])


def coarsen(features: VisualFeatures, coarsenings: Sequence[Coarsening]) -> VisualFeatures:
    """Reduces the grid of cells of every image to a coarse one, in raster order; other tokens are left out.

    `coarsenings` are one for the tokens, then one for each level. A ValueError if cells have been dropped.
    """
    counts = [len(cells) for cells in features.cells]
    if counts != [t * h * w for t, h, w in features.grids]:
        raise ValueError(
            f"some cells of these images were dropped ({counts} are left of grids {features.grids}); "
            "compress before choosing"
        )

    def reduced(coarsening: Coarsening, images: list[Tensor]) -> list[Tensor]:
        return [
            # (N, D) -> (T, H, W, D) -> (T, D, H, W) -> (T, D, h, w) -> (T, h, w, D)
            coarsening(tokens[cells].unflatten(0, grid).movedim(-1, 1)).movedim(1, -1)
            for tokens, cells, grid in zip(images, features.cells, features.grids, strict=True)
        ]

    stacks = (features.tokens, *features.levels)
    tokens, *levels = (reduced(*pair) for pair in zip(coarsenings, stacks, strict=True))
    return replace(
        features,
        tokens=[image.flatten(0, 2) for image in tokens],
        levels=[[image.flatten(0, 2) for image in level] for level in levels],
        grids=[(image.shape[0], image.shape[1], image.shape[2]) for image in tokens],
        cells=[torch.arange(image[..., 0].numel(), device=image.device) for image in tokens],
    )


def cells_alone(features: VisualFeatures) -> VisualFeatures:
    """The cells of every image in raster order, without tokens that are none (newlines and the like)."""
    if all(len(tokens) == len(cells) for tokens, cells in zip(features.tokens, features.cells, strict=True)):
        return features
    numbers = [torch.arange(len(cells), device=cells.device) for cells in features.cells]
    return replace(features.select(features.cells), cells=numbers)


def pooled(features: VisualFeatures, factor: int) -> VisualFeatures:
    """Averages the blocks of cells of every image and every level; factor 4 or 16."""
    return coarsen(features, [lambda x: pool(x, factor)] * (1 + len(features.levels)))


# ---- the compressors by name


@dataclass(frozen=True)
class Compressor:
    """Properties of a compressor: how it makes a gestalt.

    `factor` cells become one token (None: a scaled-down picture of any size is encoded); `learned`: it needs
    trained weights; `inside`: it compresses inside the vision tower.
    """

    factor: int | None
    learned: bool = False
    inside: bool = False

    @property
    def reads_tokens(self) -> bool:
        return self.factor is not None and not self.inside


COMPRESSORS: dict[str, Compressor] = {
    "resize": Compressor(None),
    "pool4": Compressor(4),
    "pool16": Compressor(16),
    **{name: Compressor(factor, learned=True) for name, factor in CONVS.items()},
    **{name: Compressor(factor, learned=True, inside=True) for name, factor in TOWERS.items()},
}


def find_compressor(name: str) -> Compressor:
    """A compressor by its name; a ValueError if it is unknown."""
    if not isinstance(name, str) or name not in COMPRESSORS:
        raise ValueError(f"compressor {name!r} is unknown; use one of {', '.join(COMPRESSORS)}")
    return COMPRESSORS[name]


def compress(
    name: str,
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    features: VisualFeatures | None = None,
    convs: Convs | None = None,
    frames: Sequence[int] = (),
) -> VisualFeatures:
    """Makes the gestalt of every image of a call: coarse tokens, all of them cells of the coarse `grids`.

    Args:
        name: one of `COMPRESSORS`.
        adapter: the base model's adapter; for a compressor inside the tower, on the twin with its LoRA.
        inputs: processor inputs with images.
        features: the encoded images; None: they are encoded here if this compressor reads them.
        convs: trained compressors by name, as returned by `load_convs`.
        frames: number of images in each image or clip: the frames of a clip share `CELLS`.
    """
    compressor = find_compressor(name)
    if compressor.factor is None and not (adapter.encodes in ("cells", "tiles") or CROP_GRIDS in inputs):
        raise ValueError(
            f"compressor {name!r} needs a vision tower of any input size, which "
            f"{adapter.model.config.model_type!r} has not; use 'pool4' or 'pool16'"
        )
    if compressor.learned and name not in (convs or {}):
        raise ValueError(
            f"compressor {name!r} has no trained weights for this model; use 'pool{compressor.factor}', or "
            f"put a trained {name}.safetensors into the allocator's folder"
        )
    if compressor.factor is None:
        shares = [max(MIN_FRAME_CELLS, CELLS // count) for count in frames for _ in range(count)]
        return cells_alone(adapter.features(adapter.coarse(inputs, cells=shares or CELLS)))
    if compressor.inside and convs:
        return convs[name](adapter, inputs)
    features = adapter.features(inputs) if features is None else features
    return convs[name](features) if compressor.learned and convs else pooled(features, compressor.factor)


# ---- files of learned compressors

MAX_BLOCKS, MAX_CELLS = 1000, 1000  # of a tower's lower half; along each side of its windows


def save_convs(convs: Convs, folder: str | Path) -> None:
    """Writes trained compressors, one `<name>.safetensors` each, in bfloat16, into an allocator's folder."""
    place = make_folder(Path(folder))
    for name, conv in convs.items():
        weights = {key: value.to(torch.bfloat16) for key, value in conv.state_dict().items()}
        numbers = None
        if isinstance(conv, TowerCompressor):
            numbers = {"first": str(conv.first), "window": str(conv.window)}
        write_tensors(weights, place / f"{name}.safetensors", numbers)


def load_convs(folder: str | Path, dim: int) -> dict[str, nn.Module]:
    """Loads the trained compressors that an allocator's folder has, frozen, by name.

    `dim` is the width of the tokens that those outside of a vision tower read.
    """
    convs: dict[str, nn.Module] = {}
    for name, factor in {**CONVS, **TOWERS}.items():
        path = Path(folder) / f"{name}.safetensors"
        if not path.is_file():
            continue
        what = f"for tokens of width {dim}" if name in CONVS else "inside a vision tower"
        with reading(
            f"{str(path)!r} is no compressor of factor {factor} {what}",
            "copy it there again, or remove it to do without",
        ):
            with safe_open(path, "pt") as file:
                weights = {key: file.get_tensor(key) for key in file.keys()}
                numbers = file.metadata() or {}
            check_finite(weights)
            conv = _inside(weights, numbers, factor) if name in TOWERS else _after(weights, dim, factor)
            conv.load_state_dict(weights, strict=True)
        convs[name] = conv.eval().requires_grad_(False)
    return convs


def _after(weights: dict[str, Tensor], dim: int, factor: int) -> nn.Module:
    levels = {key.split(".")[1] for key in weights if key.startswith("levels.")}
    return ConvCompressor(dim, factor, len(levels))


def _inside(weights: dict[str, Tensor], numbers: dict[str, str], factor: int) -> nn.Module:
    first, window = int(numbers["first"]), int(numbers["window"])
    if not (1 <= first <= MAX_BLOCKS and 1 <= window <= MAX_CELLS):
        raise ValueError(f"first is {first} and window {window}")
    return TowerCompressor(len(weights["norm.weight"]), factor, first, window)


def gestalt_features(gestalt: VisualFeatures) -> list[Tensor]:
    """The tokens of a gestalt (coarse view) as maps, per image [1, D, h, w]; a ValueError for a clip."""
    maps = []
    for image, (t, h, w) in enumerate(gestalt.grids):
        if t != 1:
            raise ValueError(f"image {image} is a clip of {t} merged frames; take the features of one frame")
        maps.append(gestalt.cell_tokens(image).T.unflatten(1, (h, w))[None])
    return maps


@torch.no_grad()
def coarse_features(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> list[Tensor]:
    """The gestalt of each image as mode "saccade" has it: maps [1, D, h, w] in the model's dtype.

    It is `resize`, or `pool4` where the tower takes one input size.
    """
    return gestalt_features(compress("resize" if adapter.encodes == "cells" else "pool4", adapter, inputs))
