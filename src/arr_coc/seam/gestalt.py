"""The gestalt: the whole image in few tokens, whatever the question (the COC of ARR-COC).

resize          the encoded tokens of a scaled-down picture, at most 256; nothing fine is encoded
pool4, pool16   the average of each 2x2 or 4x4 block of encoded cells
tower4, tower16 tokens of 4 or 16 cells from a tower that merges patches half-way (`tower_compressor`)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from arr_coc.files.atomic import make_folder
from arr_coc.files.saved import check_finite, reading, write_tensors
from arr_coc.seam.assembly import CROP_GRIDS, VisualFeatures
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.tower_compressor import SIDES, TOWERS, TowerCompressor

logger = logging.getLogger(__name__)

CELLS = 256  # most cells of the scaled-down picture of `resize`
MIN_FRAME_CELLS = 4  # least cells of a scaled-down frame, however many a clip has
REMOVED = ("conv4", "conv16")  # compressors of earlier versions, whose files aren't read

Compressors = Mapping[str, Any] | nn.ModuleDict  # `TowerCompressor`s by name
Coarsening = Callable[[Tensor], Tensor]  # from a grid of tokens [T, D, H, W] to a coarse one [T, D, h, w]


def pool(x: Tensor, factor: int) -> Tensor:
    """Averages blocks of 4 or 16 cells, in the dtype of `x`: [T, D, H, W] -> [T, D, ceil(H / side), ...]."""
    side = SIDES[factor]
    # Where a side doesn't divide, blocks overlap by a cell instead of running over the edge, so that the
    # middle of a block is within half a cell of its token's.
    size = (ceil(x.shape[-2] / side), ceil(x.shape[-1] / side))
    return F.adaptive_avg_pool2d(x.float(), size).to(x.dtype)  # float32: half precision would round the sum


def coarsen(features: VisualFeatures, coarsening: Coarsening) -> VisualFeatures:
    """Reduce the grid of cells of every image to a coarse one, in raster order; other tokens are left out.

    Every level is reduced as the tokens are. A ValueError if cells have been dropped.
    """
    counts = [len(cells) for cells in features.cells]
    if counts != [t * h * w for t, h, w in features.grids]:
        raise ValueError(
            f"some cells of these images were dropped ({counts} are left of grids {features.grids}); "
            "compress before choosing"
        )

    def reduced(images: list[Tensor]) -> list[Tensor]:
        return [
            # (N, D) -> (T, H, W, D) -> (T, D, H, W) -> (T, D, h, w) -> (T, h, w, D)
            coarsening(tokens[cells].unflatten(0, grid).movedim(-1, 1)).movedim(1, -1)
            for tokens, cells, grid in zip(images, features.cells, features.grids, strict=True)
        ]

    tokens, *levels = (reduced(images) for images in (features.tokens, *features.levels))
    return replace(
        features,
        tokens=[image.flatten(0, 2) for image in tokens],
        levels=[[image.flatten(0, 2) for image in level] for level in levels],
        grids=[(image.shape[0], image.shape[1], image.shape[2]) for image in tokens],
        cells=[torch.arange(image[..., 0].numel(), device=image.device) for image in tokens],
    )


def cells_alone(features: VisualFeatures) -> VisualFeatures:
    """Return the cells of every image in raster order, without tokens that are none (newlines and the
    like).
    """
    if all(len(tokens) == len(cells) for tokens, cells in zip(features.tokens, features.cells, strict=True)):
        return features
    numbers = [torch.arange(len(cells), device=cells.device) for cells in features.cells]
    return replace(features.select(features.cells), cells=numbers)


def pooled(features: VisualFeatures, factor: int) -> VisualFeatures:
    """Averages the blocks of cells of every image and every level; factor 4 or 16."""
    return coarsen(features, lambda x: pool(x, factor))


# ---- the compressors by name


@dataclass(frozen=True)
class Compressor:
    """Properties of a compressor: how it makes a gestalt.

    `factor` cells become one token (None: a scaled-down picture of any size is encoded); `inside`: it
    compresses inside the vision tower, by trained weights.
    """

    factor: int | None
    inside: bool = False

    @property
    def reads_tokens(self) -> bool:
        return self.factor is not None and not self.inside


COMPRESSORS: dict[str, Compressor] = {
    "resize": Compressor(None),
    "pool4": Compressor(4),
    "pool16": Compressor(16),
    **{name: Compressor(factor, inside=True) for name, factor in TOWERS.items()},
}


def find_compressor(name: str) -> Compressor:
    """Return a compressor by its name; a ValueError if it is unknown."""
    if not isinstance(name, str) or name not in COMPRESSORS:
        raise ValueError(f"compressor {name!r} is unknown; use one of {', '.join(COMPRESSORS)}")
    return COMPRESSORS[name]


def compress(
    name: str,
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    features: VisualFeatures | None = None,
    compressors: Compressors | None = None,
    frames: Sequence[int] = (),
) -> VisualFeatures:
    """Makes the gestalt of every image of a call: coarse tokens, all of them cells of the coarse `grids`.

    Args:
        name: one of `COMPRESSORS`.
        adapter: the base model's adapter; for a compressor inside the tower, on the twin with its LoRA.
        inputs: processor inputs with images.
        features: the encoded images; None: they are encoded here if this compressor reads them.
        compressors: trained ones by name, as returned by `load_compressors`.
        frames: number of images in each image or clip: the frames of a clip share `CELLS`.
    """
    compressor = find_compressor(name)
    if compressor.factor is None and not (adapter.encodes in ("cells", "tiles") or CROP_GRIDS in inputs):
        raise ValueError(
            f"compressor {name!r} needs a vision tower of any input size, which "
            f"{adapter.model.config.model_type!r} has not; use 'pool4' or 'pool16'"
        )
    if compressor.inside and name not in (compressors or {}):
        raise ValueError(
            f"compressor {name!r} has no trained weights for this model; use 'pool{compressor.factor}', or "
            f"put a trained {name}.safetensors into the allocator's folder"
        )
    if compressor.factor is None:
        shares = [max(MIN_FRAME_CELLS, CELLS // count) for count in frames for _ in range(count)]
        return cells_alone(adapter.features(adapter.coarse(inputs, cells=shares or CELLS)))
    if compressor.inside and compressors:
        return compressors[name](adapter, inputs)
    return pooled(adapter.features(inputs) if features is None else features, compressor.factor)


# ---- files of learned compressors

MAX_BLOCKS, MAX_CELLS = 1000, 1000  # of a tower's lower half; along each side of its windows


def save_compressors(compressors: Compressors, folder: str | Path) -> None:
    """Write trained compressors, one `<name>.safetensors` each, in bfloat16, into an allocator's folder."""
    place = make_folder(Path(folder))
    for name, compressor in compressors.items():
        weights = {key: value.to(torch.bfloat16) for key, value in compressor.state_dict().items()}
        numbers = {"first": str(compressor.first), "window": str(compressor.window)}
        write_tensors(weights, place / f"{name}.safetensors", numbers)


def load_compressors(folder: str | Path) -> dict[str, TowerCompressor]:
    """Load the trained compressors that an allocator's folder has, frozen, by name.

    Files of compressors that earlier versions had are left alone; the log says so.
    """
    for name in REMOVED:
        if (path := Path(folder) / f"{name}.safetensors").is_file():
            logger.warning("%s isn't read: compressor %r was removed, use 'pool4' or 'tower4'", path, name)
    compressors: dict[str, TowerCompressor] = {}
    for name, factor in TOWERS.items():
        path = Path(folder) / f"{name}.safetensors"
        if not path.is_file():
            continue
        with reading(
            f"{str(path)!r} is no compressor of factor {factor} inside a vision tower",
            "copy it there again, or remove it to do without",
        ):
            with safe_open(path, "pt") as file:
                weights = {key: file.get_tensor(key) for key in file.keys()}
                numbers = file.metadata() or {}
            check_finite(weights)
            first, window = int(numbers["first"]), int(numbers["window"])
            if not (1 <= first <= MAX_BLOCKS and 1 <= window <= MAX_CELLS):
                raise ValueError(f"first is {first} and window {window}")
            compressor = TowerCompressor(len(weights["norm.weight"]), factor, first, window)
            compressor.load_state_dict(weights, strict=True)
        compressors[name] = compressor.eval().requires_grad_(False)
    return compressors


def gestalt_features(gestalt: VisualFeatures) -> list[Tensor]:
    """Return the tokens of a gestalt (coarse view) as maps, per image [1, D, h, w]; a ValueError for a
    clip.
    """
    maps = []
    for image, (t, h, w) in enumerate(gestalt.grids):
        if t != 1:
            raise ValueError(f"image {image} is a clip of {t} merged frames; take the features of one frame")
        maps.append(gestalt.cell_tokens(image).T.unflatten(1, (h, w))[None])
    return maps


@torch.no_grad()
def coarse_features(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> list[Tensor]:
    """Return the gestalt of each image as mode "saccade" has it: maps [1, D, h, w] in the model's dtype.

    It is `resize`, or `pool4` where the tower takes one input size.
    """
    return gestalt_features(compress("resize" if adapter.encodes == "cells" else "pool4", adapter, inputs))
