"""The gestalt: a coarse view of the whole image in few tokens, whatever the question (the COC of ARR-COC).

    compress(name, adapter, inputs, features, convs) -> VisualFeatures of coarse cells alone

    resize          the encoded tokens of a scaled-down view, at most 256; nothing fine needs encoding
    pool4, pool16   the average of each 2x2 or 4x4 block of encoded cells
    conv4, conv16   that average plus what one or two strided convolutions learned to add to it, in the
                    manner of DeepSeek-OCR's 4096 -> 256 (Wei et al. 2025, arXiv 2510.18234)

Laws: no image is influenced by another; every deepstack level goes along; coarse token (i, j) of an h x w
grid stands at the middle of the i-th of h and the j-th of w parts of the fine grid (`middles`). Tokens that
are no cell (base views, newline tokens) are not compressed: they belong to the prompt, not to the gestalt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from arr_coc.seam import FamilyAdapter, Grid, VisualFeatures

CELLS = 256
"""Most cells of the coarse view that `resize` encodes."""
WIDTH, LEVEL_WIDTH = 128, 48
"""Channels between the convolutions, for the tokens and for each deepstack level."""
SIDES = {4: 2, 16: 4}
"""How many cells a side a coarse token stands for, by how many in all."""
CONVS = {"conv4": 4, "conv16": 16}
"""The learned compressors, and how many cells become one token."""

Convs = Mapping[str, Any] | nn.ModuleDict
"""`ConvCompressor`s by name."""
Look = Callable[[Tensor], Tensor]
"""From a grid of tokens [T, D, H, W] to a coarse one [T, D, h, w]."""


def middles(fine: Grid, coarse: Grid) -> Tensor:
    """Where coarse tokens stand among the fine cells: float32 [h * w, 2] of (y, x), raster order.

    Args:
        fine: (T, H, W) of the cells; the middle of cell 0 is at 0.0.
        coarse: (t, h, w) of the gestalt.
    """
    y, x = (
        (torch.arange(few) + 0.5) * (many / few) - 0.5 for many, few in zip(fine[1:], coarse[1:], strict=True)
    )
    return torch.cartesian_prod(y, x)


def pool(x: Tensor, factor: int) -> Tensor:
    """The average of each block of cells, in the dtype given.

    Where a side doesn't divide, blocks overlap by a cell instead of running over the edge, so that the
    middle of a block stays within half a cell of where its token stands.

    Args:
        x: [T, D, H, W].
        factor: 4 or 16, cells a block.

    Returns:
        [T, D, ceil(H / 2), ceil(W / 2)] for 4; a quarter a side for 16.
    """
    side = SIDES[factor]
    size = (ceil(x.shape[-2] / side), ceil(x.shape[-1] / side))
    return F.adaptive_avg_pool2d(x.float(), size).to(x.dtype)


class Halvings(nn.Module):
    """Strided 3x3 convolutions, each halving both sides, and a linear layer that starts at zero.

    Args:
        dim: D, width of the tokens.
        width: channels in between.
        times: how many halvings.
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
        """[T, D, H, W], any sides -> [T, D, ceil(H / 2^times), ...], in the dtype of the parameters.

        Sides that don't divide are padded with copies of their edge, evenly on both ends.
        """
        side = 2 ** len(self.convs)
        more = [-length % side for length in (x.shape[-1], x.shape[-2])]
        edges = [amount for m in more for amount in (m // 2, m - m // 2)]
        x = F.pad(x.to(self.head.weight.dtype), edges, mode="replicate")
        for conv in self.convs:
            x = F.gelu(conv(x))
        return self.head(x)


class ConvCompressor(nn.Module):
    """A learned compressor of encoded tokens: the block average, plus what convolutions add to it.

    Untrained it is `pool` exactly.

    Args:
        dim: D, width of the tokens.
        factor: 4 or 16, how many cells become one token.
        levels: how many deepstack levels go along; each has a smaller net of its own.

    Raises:
        ValueError: another factor.
    """

    def __init__(self, dim: int, factor: int, levels: int = 0) -> None:
        super().__init__()
        if factor not in SIDES:
            raise ValueError(f"factor {factor} is not one a compressor has; use one of {list(SIDES)}")
        self.dim, self.factor = dim, factor
        times = SIDES[factor] // 2
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            self.tokens = Halvings(dim, WIDTH, times)
            self.levels = nn.ModuleList(Halvings(dim, LEVEL_WIDTH, times) for _ in range(levels))

    def forward(self, features: VisualFeatures) -> VisualFeatures:
        """Compress every image and every level.

        Raises:
            ValueError: tokens of another width, or another number of deepstack levels.
        """
        found = (features.tokens[0].shape[-1] if features.tokens else self.dim, len(features.levels))
        if found != (self.dim, len(self.levels)):
            raise ValueError(
                f"this compressor is for tokens of width {self.dim} with {len(self.levels)} deepstack levels "
                f"but these have width {found[0]} and {found[1]}; train one for this model "
                "or use 'pool4' or 'pool16'"
            )

        def adding(net: nn.Module) -> Look:
            return lambda x: pool(x, self.factor) + net(x).to(x.dtype)

        return coarsen(features, [adding(net) for net in (self.tokens, *self.levels)])


def coarsen(features: VisualFeatures, looks: Sequence[Look]) -> VisualFeatures:
    """Put the cells of each image through a function of its grid: one for the tokens, one for each level.

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

    def through(look: Look, images: list[Tensor]) -> list[Tensor]:
        return [
            look(tokens[cells].unflatten(0, grid).movedim(-1, 1)).movedim(1, -1)  # (T, h, w, D)
            for tokens, cells, grid in zip(images, features.cells, features.grids, strict=True)
        ]

    stacks = (features.tokens, *features.levels)
    tokens, *levels = (through(look, images) for look, images in zip(looks, stacks, strict=True))
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
    """One way to a gestalt.

    Attributes:
        factor: how many encoded cells become one token; None: it encodes a coarse view instead, and needs no
            encoded cells.
        learned: it needs trained weights.
    """

    factor: int | None
    learned: bool = False


COMPRESSORS: dict[str, Compressor] = {
    "resize": Compressor(None),
    "pool4": Compressor(4),
    "pool16": Compressor(16),
    **{name: Compressor(factor, learned=True) for name, factor in CONVS.items()},
}


def find_compressor(name: str) -> Compressor:
    """A compressor by its name.

    Raises:
        ValueError: there is none of that name.
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
) -> VisualFeatures:
    """Make the gestalt of every image of a call.

    Args:
        name: one of `COMPRESSORS`.
        adapter: of the base model's family.
        inputs: ordinary processor inputs with images.
        features: the encoded images; None: they are encoded here if this compressor reads them.
        convs: trained `ConvCompressor`s by name, as `load_convs` gives them.

    Returns:
        The coarse tokens: `grids` are coarse merged grids, every token is a cell, levels go along.

    Raises:
        ValueError: an unknown name, no trained weights, or a family that can't encode a coarse view.
    """
    compressor = find_compressor(name)
    if compressor.factor is None and not adapter.sparse:
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
        return adapter.features(adapter.coarse(inputs, cells=CELLS))
    features = adapter.features(inputs) if features is None else features
    return convs[name](features) if compressor.learned and convs else pooled(features, compressor.factor)


# ---- files --------------------------------------------------------------------------------------------


def save_convs(convs: Convs, folder: str | Path) -> None:
    """Write trained compressors, one `<name>.safetensors` each, in bfloat16, into an allocator's folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, conv in convs.items():
        weights = {
            key: value.detach().cpu().to(torch.bfloat16).contiguous()
            for key, value in conv.state_dict().items()
        }
        save_file(weights, Path(folder) / f"{name}.safetensors")


def load_convs(folder: str | Path, dim: int) -> dict[str, ConvCompressor]:
    """Load the trained compressors of an allocator's folder, frozen; strict.

    Args:
        folder: where `save_convs` wrote.
        dim: D, width of the base model's tokens.

    Returns:
        By name; those without a file are left out.

    Raises:
        ValueError: a file that is no safetensors, or whose weights are missing, left over or of other shapes.
    """
    convs: dict[str, ConvCompressor] = {}
    for name, factor in CONVS.items():
        path = Path(folder) / f"{name}.safetensors"
        if not path.is_file():
            continue
        try:
            weights = load_file(path)
            levels = {key.split(".")[1] for key in weights if key.startswith("levels.")}
            conv = ConvCompressor(dim, factor, len(levels))
            conv.load_state_dict(weights, strict=True)
        except (OSError, RuntimeError, SafetensorError) as error:
            detail = " ".join(str(error).split())[:300]
            raise ValueError(
                f"{str(path)!r} is no compressor of factor {factor} for tokens of width {dim} ({detail}); "
                "copy it there again, or remove it to do without"
            ) from error
        convs[name] = conv.eval().requires_grad_(False)
    return convs
