"""The gestalt: a coarse view of the whole image in few tokens, whatever the question (the COC of ARR-COC).

    compress(name, adapter, inputs, features, convs) -> VisualFeatures of coarse cells alone

    resize          the encoded tokens of a scaled-down view, at most 256; nothing fine needs encoding
    pool4, pool16   the average of each 2x2 or 4x4 block of encoded cells
    conv4, conv16   that average plus what one or two strided convolutions learned to add to it
    tower4, tower16 tokens of 4 or 16 cells each from a vision tower that merges patches half-way, in the
                    manner of DeepSeek-OCR's 4096 -> 256 (Wei et al. 2025, arXiv 2510.18234); most of the
                    tower runs on few patches (`seam.tower_compressor`)

No image influences another. Every deepstack level is compressed too. Coarse token (i, j) of an h x w grid is
at the middle of the i-th of h and the j-th of w parts of the fine grid (`middles`). Tokens that are no cell
(base views, newline tokens) are not compressed: they belong to the prompt, not to the gestalt.
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
from arr_coc.files.saved import check_finite, made_folder, reading, write_tensors
from arr_coc.seam.assembly import CROP_GRIDS, VisualFeatures
from arr_coc.seam.base import FamilyAdapter, Grid
from arr_coc.seam.tower_compressor import SIDES, TOWERS, Halvings, TowerCompressor

CELLS = 256
"""Most cells of the coarse view that `resize` encodes."""
LEAST = 4
"""Cells of that of a frame, however many frames a clip has."""
WIDTH, LEVEL_WIDTH = 128, 48
"""Channels between the convolutions, for the tokens and for each deepstack level."""
CONVS = {"conv4": 4, "conv16": 16}
"""The learned compressors by name, and how many cells become one token."""

Convs = Mapping[str, Any] | nn.ModuleDict
"""`ConvCompressor`s and `TowerCompressor`s by name."""
Coarsening = Callable[[Tensor], Tensor]
"""From a grid of tokens [T, D, H, W] to a coarse one [T, D, h, w]."""


def middles(fine: Grid, coarse: Grid) -> Tensor:
    """The middles of coarse tokens in fine cells: float32 [h * w, 2] of (y, x), raster order.

    Args:
        fine: (T, H, W) of the cells; the middle of cell 0 is at 0.0.
        coarse: (t, h, w) of the gestalt.
    """
    y, x = (
        (torch.arange(few) + 0.5) * (many / few) - 0.5 for many, few in zip(fine[1:], coarse[1:], strict=True)
    )
    return torch.cartesian_prod(y, x)


def pool(x: Tensor, factor: int) -> Tensor:
    """The average of each block of cells, in the dtype of `x`.

    Where a side doesn't divide, blocks overlap by a cell instead of running over the edge, so that the
    middle of a block is within half a cell of its token's (`middles`).

    Args:
        x: [T, D, H, W].
        factor: 4 or 16, cells of a block.

    Returns:
        [T, D, ceil(H / 2), ceil(W / 2)] for 4; ceil(H / 4), ceil(W / 4) for 16.
    """
    side = SIDES[factor]
    size = (ceil(x.shape[-2] / side), ceil(x.shape[-1] / side))
    return F.adaptive_avg_pool2d(x.float(), size).to(x.dtype)


class ConvCompressor(nn.Module):
    """A learned compressor of encoded tokens: the block average plus a convolutional net's output.

    Untrained it equals `pool` exactly.

    Args:
        dim: D, width of the tokens.
        factor: 4 or 16, how many cells become one token.
        levels: number of deepstack levels; each has a smaller net of its own.

    Raises:
        ValueError: `factor` is neither.
    """

    def __init__(self, dim: int, factor: int, levels: int = 0) -> None:
        super().__init__()
        if factor not in SIDES:
            raise ValueError(f"factor {factor} is not one a compressor has; use one of {list(SIDES)}")
        self.dim, self.factor = dim, factor
        times = SIDES[factor] // 2
        with same_start():
            self.tokens = Halvings(dim, WIDTH, times)
            self.levels = nn.ModuleList(Halvings(dim, LEVEL_WIDTH, times) for _ in range(levels))

    def forward(self, features: VisualFeatures) -> VisualFeatures:
        """Compress every image and every level.

        Raises:
            ValueError: tokens of another width, or another number of deepstack levels.
        """
        width, levels = (features.tokens[0].shape[-1] if features.tokens else self.dim, len(features.levels))
        if (width, levels) != (self.dim, len(self.levels)):
            raise ValueError(
                f"this compressor is for tokens of width {self.dim} with {len(self.levels)} deepstack levels "
                f"but these have width {width} and {levels}; train one for this model or use 'pool4' or "
                "'pool16'"
            )

        def pool_plus(net: nn.Module) -> Coarsening:
            return lambda x: pool(x, self.factor) + net(x).to(x.dtype)

        return coarsen(features, [pool_plus(net) for net in (self.tokens, *self.levels)])


def coarsen(features: VisualFeatures, coarsenings: Sequence[Coarsening]) -> VisualFeatures:
    """Reduce the grid of cells of every image to a coarse one.

    Args:
        features: the encoded images, all their cells.
        coarsenings: one for the tokens, then one for each deepstack level.

    Returns:
        Features of the coarse cells alone, in raster order.

    Raises:
        ValueError: some cells of an image have been dropped.
    """
    counts = [len(cells) for cells in features.cells]
    if counts != [t * h * w for t, h, w in features.grids]:
        raise ValueError(
            f"some cells of these images were dropped ({counts} are left of grids {features.grids}); "
            "compress before choosing"
        )

    def reduced(coarsening: Coarsening, images: list[Tensor]) -> list[Tensor]:
        return [
            coarsening(tokens[cells].unflatten(0, grid).movedim(-1, 1)).movedim(1, -1)  # (T, h, w, D)
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


def pooled(features: VisualFeatures, factor: int) -> VisualFeatures:
    """Average the blocks of cells of every image and every level; factor 4 or 16."""
    return coarsen(features, [lambda x: pool(x, factor)] * (1 + len(features.levels)))


# ---- the compressors by name --------------------------------------------------------------------------


@dataclass(frozen=True)
class Compressor:
    """Properties of a compressor.

    Attributes:
        factor: how many cells become one token; None: it encodes a coarse view instead, of as many as asked
            for. learned: whether it needs trained weights. inside: it compresses inside the vision tower.
    """

    factor: int | None
    learned: bool = False
    inside: bool = False

    @property
    def reads_tokens(self) -> bool:
        """Whether it compresses what the whole tower has encoded."""
        return self.factor is not None and not self.inside


COMPRESSORS: dict[str, Compressor] = {
    "resize": Compressor(None),
    "pool4": Compressor(4),
    "pool16": Compressor(16),
    **{name: Compressor(factor, learned=True) for name, factor in CONVS.items()},
    **{name: Compressor(factor, learned=True, inside=True) for name, factor in TOWERS.items()},
}


def find_compressor(name: str) -> Compressor:
    """A compressor by its name.

    Raises:
        ValueError: an unknown name.
    """
    if name not in COMPRESSORS:
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
    """Make the gestalt of every image of a call.

    Args:
        name: one of `COMPRESSORS`.
        adapter: the base model's adapter; for a compressor inside the tower, on the twin with its LoRA.
        inputs: ordinary processor inputs with images.
        features: the encoded images; None: they are encoded here if this compressor reads them.
        convs: trained compressors by name, as returned by `load_convs`.
        frames: how many images in a row each image or clip consists of: the frames of a clip share what
            `resize` encodes of one image. Empty: all are images.

    Returns:
        The coarse tokens and levels: `grids` are the coarse grids, and every token is a cell.

    Raises:
        ValueError: an unknown name, no trained weights, or a family that can't encode a coarse view.
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
        shares = [max(LEAST, CELLS // count) for count in frames for _ in range(count)]
        return adapter.features(adapter.coarse(inputs, cells=shares or CELLS))
    if compressor.inside and convs:
        return convs[name](adapter, inputs)
    features = adapter.features(inputs) if features is None else features
    return convs[name](features) if compressor.learned and convs else pooled(features, compressor.factor)


# Files of learned compressors in an allocator's folder: `<name>.safetensors` each, in bfloat16.
#
#     save_convs(convs, folder)
#     load_convs(folder, dim)     frozen, by name; those without a file are left out
#
# A compressor inside the tower says in the file's metadata after how many blocks it works, and on which
# windows.

MOST_BLOCKS, MOST_CELLS = 1000, 1000
"""Of the lower half of a tower, and along each side of its windows."""


def save_convs(convs: Convs, folder: str | Path) -> None:
    """Write trained compressors, one `<name>.safetensors` each, in bfloat16, into an allocator's folder."""
    place = made_folder(Path(folder))
    for name, conv in convs.items():
        weights = {key: value.to(torch.bfloat16) for key, value in conv.state_dict().items()}
        numbers = None
        if isinstance(conv, TowerCompressor):
            numbers = {"first": str(conv.first), "window": str(conv.window)}
        write_tensors(weights, place / f"{name}.safetensors", numbers)


def load_convs(folder: str | Path, dim: int) -> dict[str, nn.Module]:
    """Load the trained compressors of an allocator's folder, frozen; every weight must be there and fit.

    Args:
        folder: the one given to `save_convs`.
        dim: D, width of the base model's tokens.

    Returns:
        By name; those without a file are left out.

    Raises:
        ValueError: a file that is no safetensors, or whose weights are missing, left over or of other shapes.
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
    if not (1 <= first <= MOST_BLOCKS and 1 <= window <= MOST_CELLS):
        raise ValueError(f"first is {first} and window {window}")
    return TowerCompressor(len(weights["norm.weight"]), factor, first, window)


# Features of a vision encoder on a coarse view of a picture, for the texture group "components".
#
#     coarse_features(adapter, inputs) -> per image [1, F, h, w]      the vision-language model's own
#     VisionTower.from_pretrained("openai/clip-vit-base-patch32")(pictures [B, 3, h, w]) -> [B, F, h', w']
#
# The basis of either is fitted once, on some hundred pictures, and saved where the user likes:
#
#     fit_basis(tower(picture) for picture in pictures).save("basis.safetensors")


def gestalt_features(gestalt: VisualFeatures) -> list[Tensor]:
    """The tokens of a gestalt as maps: per image [1, D, h, w], in their own dtype.

    Raises:
        ValueError: a clip of more than one frame among the images.
    """
    maps = []
    for image, (t, h, w) in enumerate(gestalt.grids):
        if t != 1:
            raise ValueError(f"image {image} is a clip of {t} merged frames; take the features of one frame")
        maps.append(gestalt.cell_tokens(image).T.unflatten(1, (h, w))[None])
    return maps


@torch.no_grad()
def coarse_features(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> list[Tensor]:
    """What a vision-language model's own encoder makes of a coarse view of each image of a call.

    The view is the gestalt of mode "saccade": the scaled-down picture of at most 256 cells, or, in a family
    whose tower takes one input size, the encoded cells averaged 2x2. A call that has a gestalt already passes
    it to `gestalt_features` and pays nothing.

    Args:
        adapter: of the model.
        inputs: processor inputs with still images.

    Returns:
        Per image [1, D, h, w], in the dtype of the model.

    Raises:
        ValueError: a clip among the images.
    """
    return gestalt_features(compress("resize" if adapter.encodes == "cells" else "pool4", adapter, inputs))


class VisionTower:
    """A vision transformer of fixed input size, such as CLIP's or SigLIP's, as an encoder of coarse views.

    Args:
        model: a loaded transformers vision model: pixels in, `last_hidden_state` out, one token a patch in
            raster order, others (a class token, registers) before them.
        mean: per channel, of its image processor's normalisation.
        std: likewise.

    Raises:
        ValueError: its configuration doesn't say the sizes of images and patches.
    """

    def __init__(self, model: Any, mean: list[float], std: list[float]) -> None:
        config = model.config
        size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
        if not isinstance(size, int) or not isinstance(patch, int) or size < patch:
            raise ValueError(
                f"{config.model_type!r} is no vision tower of fixed input size (image_size {size}, "
                f"patch_size {patch}); use one such as CLIP's or SigLIP's"
            )
        self.model, self.size, self.side = model.eval().requires_grad_(False), size, size // patch
        self.mean, self.std = (torch.tensor(x, dtype=torch.float32).view(3, 1, 1) for x in (mean, std))

    @classmethod
    def from_pretrained(cls, name: str | Path, device: str = "cpu") -> VisionTower:
        """Load a tower by its name on the Hub or its folder; of a model with two towers, the vision half.

        Only safetensors are read, and no code of the folder's is run.

        Raises:
            ValueError: no such model, no image processor beside it, or a model without such a tower.
        """
        from transformers import AutoImageProcessor, AutoModel

        with reading(
            f"{str(name)!r} can't be loaded as a vision tower",
            "give the name or the folder of a CLIP or SigLIP checkpoint in safetensors with its processor",
        ):
            processor = AutoImageProcessor.from_pretrained(str(name), trust_remote_code=False)
            model, report = AutoModel.from_pretrained(
                str(name), use_safetensors=True, trust_remote_code=False, output_loading_info=True
            )
            if lacking := sorted(report["missing_keys"]):
                raise ValueError(f"{len(lacking)} weights are missing, first {lacking[0]}")
        tower = getattr(model, "vision_model", model).to(device)
        return cls(tower, list(processor.image_mean), list(processor.image_std))

    @torch.no_grad()
    def __call__(self, pictures: Tensor) -> Tensor:
        """Features of pictures of one size.

        The whole picture is scaled to the tower's input, whatever its shape: the maps cover all of it.

        Args:
            pictures: float [B, 3, h, w] in [0, 1].

        Returns:
            Float32 [B, F, side, side], on the device of the pictures.

        Raises:
            ValueError: the tower gives fewer tokens than patches.
        """
        small = F.interpolate(
            pictures.float(), (self.size, self.size), mode="bilinear", align_corners=False, antialias=True
        )
        pixels = (small - self.mean.to(small)) / self.std.to(small)
        parameter = next(self.model.parameters())
        tokens = self.model(pixel_values=pixels.to(parameter)).last_hidden_state  # (B, n, F)
        patches = self.side**2
        if tokens.shape[1] < patches:
            raise ValueError(
                f"the tower gives {tokens.shape[1]} tokens for {patches} patches; use another one"
            )
        return tokens[:, -patches:].mT.unflatten(2, (self.side, self.side)).float().to(pictures.device)
