"""The stem: a small convolutional net that gives one vector per cell from pixels, before any encoding.

Stem(dim)(picture [B, 3, h, w] in [0, 1], grid=(H, W)) -> [B, H*W, D], in the place of encoded tokens
Familiarity(dim)(tokens [N, D]) -> a score, above 0 if the picture is unlike those the stem was trained on
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from arr_coc.choose.knowing import same_start
from arr_coc.choose.texture import CELL
from arr_coc.files.saved import check_finite, reading, write_tensors

FILE = "stem.safetensors"  # the stem's file in an allocator folder
WIDTH = 160  # channels of the blocks
BLOCKS = 4  # blocks after the convolutions


class ConvNeXtBlock(nn.Module):
    """A ConvNeXt block (Liu et al. 2022): depthwise convolution, norm, two linear layers, residual."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.look = nn.Conv2d(width, width, size, padding=size // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        nn.init.normal_(self.down.weight, std=0.1 * (2 * width) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.norm(self.look(x).movedim(1, -1))
        return x + self.down(F.gelu(self.up(mixed))).movedim(-1, 1)


class Downsampling(nn.Module):
    """A strided convolution with a norm over channels after it."""

    def __init__(self, before: int, after: int, size: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, size, stride, padding=(size - stride + 1) // 2)
        self.norm = nn.LayerNorm(after)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x).movedim(1, -1)).movedim(-1, 1)


class Stem(nn.Module):
    """A convolutional net from pixels [B, 3, h, w] to one vector per cell, [B, H*W, D].

    The vectors have the width D of the encoder's tokens and take their place in the scorers, at about a
    thousandth of the cost of the encoder of a 2B model.
    """

    def __init__(self, dim: int, width: int = WIDTH, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.dim, self.width = dim, width
        self.familiarity: Familiarity | None = None  # None: not fitted
        with same_start():
            self.downs = nn.ModuleList(
                (
                    Downsampling(3, 32, 4, 4),
                    Downsampling(32, 64, 3, 2),
                    Downsampling(64, 128, 3, 2),
                    Downsampling(128, width, 2, 2),
                )
            )
            self.patch = ConvNeXtBlock(128, 5)  # at half a cell: where the strokes of a letter come together
            self.blocks = nn.ModuleList(ConvNeXtBlock(width, 7) for _ in range(blocks))
            self.gestalt = nn.Linear(dim, width)
            self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, dim))
        nn.init.zeros_(self.gestalt.weight)
        nn.init.zeros_(self.gestalt.bias)

    def forward(self, picture: Tensor, grid: tuple[int, int], gestalt: Tensor | None = None) -> Tensor:
        """Return the vectors of every cell, [B, H*W, D] in raster order, in the dtype of the parameters.

        `picture` [B, 3, h, w] in [0, 1] is the area of the grid; `gestalt` [B, D, H', W'] a coarse view.
        """
        size, x = (CELL * grid[0], CELL * grid[1]), picture
        if x.shape[-2:] != size:  # in float32: some kernels have no bfloat16
            x = F.interpolate(x.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
        x = torch.add(x.new_tensor(-1.0, dtype=torch.float32), x, alpha=2)  # to [-1, 1], in one pass
        x = x.to(self.gestalt.weight.dtype, memory_format=torch.channels_last)
        first, second, third, last = self.downs
        # [B, 3, 32 H, 32 W] -> [B, 128, 2 H, 2 W], then one place for each cell.
        x = self.patch(F.gelu(third(F.gelu(second(F.gelu(first(x)))))))
        x = last(x)  # (B, width, H, W)
        if gestalt is not None:
            # Linear layers read the last axis, maps have the width second.
            coarse = self.gestalt(gestalt.movedim(1, -1).to(x.dtype)).movedim(-1, 1)
            x = x + F.interpolate(coarse, size=grid, mode="bilinear", align_corners=False)
        for block in self.blocks:
            x = block(x)
        return self.head(x.movedim(1, -1)).flatten(1, 2)


def save_stem(stem: Stem, folder: Path) -> None:
    """Write a stem as one safetensors file into an existing folder, in bfloat16 but for its `Familiarity`."""
    weights = {
        name: tensor if name.startswith("familiarity.") else tensor.to(torch.bfloat16)
        for name, tensor in stem.state_dict().items()
    }
    shape = {"dim": str(stem.dim), "width": str(stem.width), "blocks": str(len(stem.blocks))}
    write_tensors(weights, folder / FILE, shape)


def load_stem(folder: Path, dim: int) -> Stem | None:
    """Return the stem of an allocator folder, in float32; None if it has none.

    A ValueError if its width is not `dim`, that of the base model's tokens, or its file is no saved stem.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    with reading(f"{str(path)!r} is not a saved stem", "save it again with save_pretrained"):
        with safe_open(path, framework="pt") as file:
            shape = {name: int((file.metadata() or {})[name]) for name in ("dim", "width", "blocks")}
            weights = {name: file.get_tensor(name).float() for name in file.keys()}
        check_finite(weights)
        most = sum(weight.numel() for weight in weights.values())
        # A file's own sizes are checked before anything of that size is built.
        if not (0 < shape["dim"] * shape["width"] <= most and 0 <= shape["blocks"] <= len(weights)):
            raise ValueError(f"its sizes are {shape}, and its weights have {most} numbers")
        stem = Stem(**shape)
        if any(name.startswith("familiarity.") for name in weights):
            stem.familiarity = Familiarity(stem.dim)
        stem.load_state_dict(weights, strict=True)
    if stem.dim != dim:
        raise ValueError(
            f"the stem in {str(path)!r} is {stem.dim} wide but the base model {dim}; use its own"
        )
    return stem


# Note of an answer about an unfamiliar picture or clip.
FOREIGN = (
    "Don't trust this answer: the bundled model has not seen pictures like this one. "
    "The marked cells are still what a larger model would be given."
)
# Note of cells that the guide chose in place of a trained allocator.
GUIDED = "this picture looks unlike those that the allocator was trained on, so the guide chose the cells"
OTHERWISE = " Also: "  # before what else is noted on such an answer
MAX_DEVIATIONS = 8.0  # standard deviations at which a statistic is cut off


def foreign_note(note: str | None) -> str:
    """The note of an answer about an unfamiliar picture, from what else is noted on it (None: nothing)."""
    rest = "; ".join(part for part in (note or "").split("; ") if part != GUIDED)
    return f"{FOREIGN}{OTHERWISE}{rest}" if rest else FOREIGN


class Familiarity(nn.Module):
    """Whether a picture looks like those that a stem was trained on: a linear unit over its tokens.

    It reads mean and spread of the stem's tokens; `making/familiarity.py` fits it. **Law:** the score depends
    on the tokens of one picture alone, in any order.
    """

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2 * dim))
        self.register_buffer("scale", torch.ones(2 * dim))
        self.register_buffer("weight", torch.zeros(2 * dim))
        self.register_buffer("bias", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the score of a picture from the stem's tokens [N, D], without coarse view; above 0:
        unfamiliar.
        """
        return self.score(statistics(tokens))

    def normalised(self, values: Tensor) -> Tensor:
        """Return statistics [..., 2 D] in standard deviations of the pictures trained on, clamped."""
        mean, scale = self.mean.float(), self.scale.float()  # a stem can be kept in half precision
        return ((values - mean) / scale).clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS)

    def score(self, values: Tensor) -> Tensor:
        """Return the scores of statistics, [..., 2 D] -> [...]; above 0: unfamiliar."""
        return self.normalised(values) @ self.weight.float() + self.bias.float()


def statistics(tokens: Tensor) -> Tensor:
    """Return the mean and standard deviation over the cells, [N, D] -> [2 D]."""
    tokens = tokens.float()
    return torch.cat([tokens.mean(0), tokens.std(0, correction=0)])
