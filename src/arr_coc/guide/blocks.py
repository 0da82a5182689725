"""Means and extremes of blocks of pixels, such as all of 8 x 16 px.

    block_mean(light, (4, 4))      [..., h, w] -> [..., h / 4, w / 4], as F.avg_pool2d
    block_max(light, (8, 16))      [..., h, w] -> [..., h / 8, w / 16], as F.max_pool2d
    window_mean(light, 9)          [..., h, w] -> [..., h - 8, w - 8], as F.avg_pool2d of stride 1

torch pools a picture of one or three channels pixel by pixel on a CPU: these take a third to a twentieth of
that. Rows come first, as whole lines of pixels; what is left for the columns is little.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

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
