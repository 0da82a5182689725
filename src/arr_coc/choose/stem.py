"""The stem: a small convolutional net that gives one vector per cell from pixels, before any encoding.

    Stem(dim)(picture [B, 3, h, w] in [0, 1], grid=(H, W)) -> [B, H*W, D], in the place of encoded tokens

A cell mean can't tell the letter K from Q, so choosing *before* the vision encoder needs features of its own:
four strided convolutions over the full-resolution pixels down to one vector per cell, then a few blocks that
join neighbouring cells (Liu et al. 2022, ConvNeXt), for about a thousandth of the cost of the encoder of a 2B
model. Its vectors lie in the space of the encoder's own tokens, so the scorers and the balancer read them as
they read those; they are trained to be ranked, not to be read by the language model.

A gestalt (the encoded tokens of a coarse view, where one was encoded anyway) can be added to the cells.

Laws: any aspect ratio, deterministic, no image influences another of its batch, and the result has the dtype
of the parameters whatever that of the picture.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from arr_coc.choose.knowing import same_start
from arr_coc.choose.layer import CELL
from arr_coc.files.saved import check_finite, reading, write_tensors

FILE = "stem.safetensors"
"""The stem's file in an allocator folder."""
WIDTH = 160
"""Channels of the blocks."""
BLOCKS = 4
"""Blocks after the convolutions."""


class Block(nn.Module):
    """A ConvNeXt block: depthwise 7x7, norm, two linear layers, added to its input."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.look = nn.Conv2d(width, width, size, padding=size // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        nn.init.normal_(self.down.weight, std=0.1 * (2 * width) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, [B, width, h, w] -> the same shape."""
        mixed = self.norm(self.look(x).movedim(1, -1))
        return x + self.down(F.gelu(self.up(mixed))).movedim(-1, 1)


class Down(nn.Module):
    """A strided convolution with a norm over channels after it."""

    def __init__(self, before: int, after: int, size: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, size, stride, padding=(size - stride + 1) // 2)
        self.norm = nn.LayerNorm(after)

    def forward(self, x: Tensor) -> Tensor:
        """The reduced map, [B, before, h, w] -> [B, after, h / stride, w / stride]."""
        return self.norm(self.conv(x).movedim(1, -1)).movedim(-1, 1)


class Stem(nn.Module):
    """A convolutional net from pixels [B, 3, h, w] to one vector per cell, [B, H*W, D].

    Args:
        dim: D, width of the encoder's tokens, in whose place its vectors are used.
        width: Channels of the blocks.
        blocks: Number of blocks.

    Attributes:
        familiarity: tells pictures like those that it was taught on from others; None: nobody fitted one.
    """

    def __init__(self, dim: int, width: int = WIDTH, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.dim, self.width = dim, width
        self.familiarity: Familiarity | None = None
        with same_start():
            self.downs = nn.ModuleList(
                (Down(3, 32, 4, 4), Down(32, 64, 3, 2), Down(64, 128, 3, 2), Down(128, width, 2, 2))
            )
            self.patch = Block(128, 5)  # at half a cell: where the strokes of a letter come together
            self.blocks = nn.ModuleList(Block(width, 7) for _ in range(blocks))
            self.gestalt = nn.Linear(dim, width)
            self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, dim))
        nn.init.zeros_(self.gestalt.weight)
        nn.init.zeros_(self.gestalt.bias)

    def forward(self, picture: Tensor, grid: tuple[int, int], gestalt: Tensor | None = None) -> Tensor:
        """The vectors of every cell.

        Args:
            picture: Float [B, 3, h, w] in [0, 1], the area that the cells of the grid cover.
            grid: (H, W).
            gestalt: [B, D, H', W'], encoded tokens of a coarse view of the same picture, or None.

        Returns:
            [B, H*W, D] in raster order, in the dtype of the parameters.
        """
        size, x = (CELL * grid[0], CELL * grid[1]), picture
        if x.shape[-2:] != size:  # in float32: some kernels know no bfloat16
            x = F.interpolate(x.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
        x = torch.add(x.new_tensor(-1.0, dtype=torch.float32), x, alpha=2)  # to [-1, 1], in one pass
        x = x.to(self.gestalt.weight.dtype, memory_format=torch.channels_last)
        first, second, third, last = self.downs
        x = self.patch(F.gelu(third(F.gelu(second(F.gelu(first(x)))))))
        x = last(x)  # (B, width, H, W)
        if gestalt is not None:
            coarse = self.gestalt(gestalt.movedim(1, -1).to(x.dtype)).movedim(-1, 1)
            x = x + F.interpolate(coarse, size=grid, mode="bilinear", align_corners=False)
        for block in self.blocks:
            x = block(x)
        return self.head(x.movedim(1, -1)).flatten(1, 2)


def save_stem(stem: Stem, folder: Path) -> None:
    """Write a stem as one safetensors file into a folder that exists: in bfloat16, but its familiarity."""
    weights = {
        name: tensor if name.startswith("familiarity.") else tensor.to(torch.bfloat16)
        for name, tensor in stem.state_dict().items()
    }
    shape = {"dim": str(stem.dim), "width": str(stem.width), "blocks": str(len(stem.blocks))}
    write_tensors(weights, folder / FILE, shape)


def load_stem(folder: Path, dim: int) -> Stem | None:
    """The stem of an allocator folder, in float32; None if it has none.

    Args:
        folder: An allocator folder.
        dim: D, the width of the base model's tokens.

    Raises:
        ValueError: the stem has another width, or its file is no saved stem.
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


# Familiarity: whether a picture looks like those that a stem was taught on.
#
#     Familiarity(dim)(tokens [N, D]) -> how much more foreign than familiar, above 0: foreign
#
# A small model answers about any picture, with the same confidence about one of a kind that it never saw.
# What
# the stem makes of the cells tells the two apart: the mean and the spread of its tokens over the picture go
# through one linear unit, which was fitted to pictures of the stem's own world and to others
# (`making/familiarity.py` for the bundled one).
#
# Law: the score depends on the tokens of one picture alone, and not on their order.

FOREIGN = "this picture looks unlike all that this model was taught on, so its answer is probably wrong"
"""What is said beside an answer about a foreign picture or clip."""
GUIDED = "the guide chose the cells, since this picture looks unlike all that the allocator was trained on"
"""What is said beside cells of one that the guide chose in place of a trained allocator."""
FARTHEST = 8.0
"""Standard deviations at which a statistic is cut off, so that no single one decides alone."""


class Familiarity(nn.Module):
    """A linear unit over the mean and the spread of a picture's tokens.

    Args:
        dim: D, the width of the tokens.
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
        """The score of one picture, a scalar; above 0 it is foreign.

        Args:
            tokens: [N, D], the stem's tokens of all cells, without a gestalt under them.
        """
        return self.score(statistics(tokens))

    def normalised(self, values: Tensor) -> Tensor:
        """Statistics [..., 2 D] in standard deviations of the own world, cut off."""
        mean, scale = self.mean.float(), self.scale.float()  # a stem can be kept in half precision
        return ((values - mean) / scale).clamp(-FARTHEST, FARTHEST)

    def score(self, values: Tensor) -> Tensor:
        """The scores of statistics, [..., 2 D] -> [...]; above 0 their picture is foreign."""
        return self.normalised(values) @ self.weight.float() + self.bias.float()


def statistics(tokens: Tensor) -> Tensor:
    """Mean and standard deviation over the cells, [N, D] -> [2 D]; of a single cell the deviation is 0."""
    tokens = tokens.float()
    return torch.cat([tokens.mean(0), tokens.std(0, correction=0)])
