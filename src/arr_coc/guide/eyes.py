"""Eyes: a convolutional net that reads print, from pixels to a vector for every slot of 8 x 16 px.

    Eyes()(luminance(picture)) -> Sight(print [B, DIM, h/8, w/16], features [B, WIDTH, h/8, w/16])

The vector of a slot is compared with vectors of words (`words`): the slots on which a word is printed are
taught to agree with it, whatever the font. Luminance alone is read, less its local mean and over its
local spread, so that pale print on a dark page looks like dark print on a white one. Large print is read
in the picture at half its size, by the same weights.

Batch norm and strided convolutions of three pixels: layer norm on patches of pixels learned nothing.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.guide.words import ALPHABET, DIM

# Means and extremes of blocks of pixels, such as all of 8 x 16 px.
#
#     block_mean(light, (4, 4))      [..., h, w] -> [..., h / 4, w / 4], as F.avg_pool2d
#     block_max(light, (8, 16))      [..., h, w] -> [..., h / 8, w / 16], as F.max_pool2d
#     window_mean(light, 9)          [..., h, w] -> [..., h - 8, w - 8], as F.avg_pool2d of stride 1
#
# torch pools a picture of one or three channels pixel by pixel on a CPU: these take a third to a twentieth
# of
# that. Rows come first, as whole lines of pixels; what is left for the columns is little.

NARROW = 4
"""Columns of a block up to which slices are added up: a reduction of so few numbers is slower."""


def block_mean(x: Tensor, size: tuple[int, int]) -> Tensor:
    """The mean of each block.

    Args:
        x: float [..., h, w], sides multiples of those of a block.
        size: (rows, columns) of a block.
    """
    rows, columns = size
    x = x.unflatten(-2, (-1, rows)).mean(-2)
    if columns > NARROW:
        return x.unflatten(-1, (-1, columns)).mean(-1)
    return reduce(torch.add, (x[..., i::columns] for i in range(columns))) / columns


def block_max(x: Tensor, size: tuple[int, int]) -> Tensor:
    """The largest value of each block; arguments as of `block_mean`."""
    rows, columns = size
    x = x.unflatten(-2, (-1, rows)).amax(-2)
    if columns > NARROW:
        return x.unflatten(-1, (-1, columns)).amax(-1)
    return reduce(torch.maximum, (x[..., i::columns] for i in range(columns)))


def window_mean(x: Tensor, side: int) -> Tensor:
    """The mean of every window of side x side px that lies in x, float [..., h, w]."""
    height, width = x.shape[-2] - side + 1, x.shape[-1] - side + 1
    x = reduce(torch.add, (x[..., i : i + height, :] for i in range(side)))
    return reduce(torch.add, (x[..., i : i + width] for i in range(side))) / side**2


SLOT = (8, 16)
"""Height and width of a slot in px."""
WIDTHS = (16, 32, 64)
"""Channels at a half, a quarter and an eighth of the picture's size."""
WIDTH = 96
"""Channels at slots."""
NEAR = 33
"""Side in px of the neighbourhood whose mean and spread are taken out."""


class Sight(NamedTuple):
    """What the eyes see in each slot: a vector of its print, of unit length, features, and character logits.

    `print` [B, DIM, H, W], `features` [B, WIDTH, H, W]; `characters` [B, len(ALPHABET), h/8, w/8] logits
    of the characters that stand there, or None where they weren't asked for.
    """

    print: Tensor
    features: Tensor
    characters: Tensor | None = None


def convolution(
    before: int, after: int, size: int | tuple[int, int] = 3, stride: int | tuple[int, int] = 1
) -> nn.Sequential:
    """A convolution with batch norm."""
    height, width = (size, size) if isinstance(size, int) else size
    conv = nn.Conv2d(before, after, (height, width), stride, (height // 2, width // 2), bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after))


class Residual(nn.Module):
    """Two convolutions with batch norm, added to their input."""

    def __init__(self, width: int, first: tuple[int, int] = (3, 3), second: tuple[int, int] = (3, 3)) -> None:
        super().__init__()
        self.first, self.second = convolution(width, width, first), convolution(width, width, second)
        nn.init.zeros_(cast(nn.BatchNorm2d, self.second[1]).weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width, h, w] -> the same shape."""
        return (x + self.second(self.first(x).relu_())).relu_()


def luminance(picture: Tensor) -> Tensor:
    """The luminance of pictures, [B, 3, h, w] -> [B, 1, h, w]."""
    red, green, blue = picture.unbind(1)
    return (0.299 * red + 0.587 * green).add_(blue, alpha=0.114)[:, None]


def contrast(light: Tensor) -> Tensor:
    """Luminance [B, 1, h, w] less its local mean and over its local spread, of the same shape."""
    quarter = torch.cat([block_mean(x, (4, 4)) for x in (light, light.square())], 1)
    side = NEAR // 4 | 1
    near = window_mean(F.pad(quarter, (side // 2,) * 4, mode="replicate"), side)
    mean, square = near.split(1, 1)
    spread = (square - mean.square()).clamp_min(0).sqrt()
    blocks = light.unflatten(-1, (-1, 4)).unflatten(-3, (-1, 4))  # (B, 1, h/4, 4, w/4, 4)
    mean, scale = (x[..., None, :, None] for x in (mean, 1 / (spread + 0.06)))
    return ((blocks - mean) * scale).flatten(-2).flatten(-3, -2)


class Eyes(nn.Module):
    """The net; see the module."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = WIDTHS
        self.stem = nn.Sequential(
            convolution(1, first, stride=2), nn.ReLU(inplace=True),
            convolution(first, second, stride=2), nn.ReLU(inplace=True),
            convolution(second, third, stride=2), nn.ReLU(inplace=True),
            Residual(third), Residual(third),
        )  # fmt: skip
        self.characters = nn.Conv2d(third, len(ALPHABET), 1)
        nn.init.constant_(cast(Tensor, self.characters.bias), -4.5)  # most slots hold none of most
        self.widen = nn.Sequential(convolution(third, WIDTH, stride=(1, 2)), nn.ReLU(inplace=True))
        sizes = ((3, 3), (1, 3), (1, 3))  # the stem has looked far enough up and down; words are wide
        self.blocks = nn.Sequential(*(Residual(WIDTH, size, (1, 7)) for size in sizes))
        self.print = convolution(WIDTH, DIM, 1)  # centred: what all slots have in common says nothing

    def forward(self, light: Tensor, characters: bool = False) -> Sight:
        """What stands in each slot.

        Args:
            light: luminance, float [B, 1, h, w] in [0, 1], h a multiple of 8 and w of 16.
            characters: whether to tell characters too.
        """
        x = contrast(light.float()).to(self.characters.weight.dtype, memory_format=torch.channels_last)
        x = self.stem(x)
        letters = self.characters(x) if characters else None
        x = self.blocks(self.widen(x))
        vectors = self.print(x)
        return Sight(F.normalize(vectors.float(), dim=1), x, letters)
