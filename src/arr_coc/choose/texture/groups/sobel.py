"""Strength of edges in each cell: Sobel |d/dx|, |d/dy| and the length of both."""

from __future__ import annotations

from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group

NAMES = ("sobel_x", "sobel_y", "sobel")


def sobel(context: ChannelContext) -> Tensor:
    """Cell means of |d/dx|, |d/dy| and their length, [B, 3, H, W]; 1 where all is a black-white edge."""
    return context.edges


register_channel_group(
    ChannelGroup("sobel", 3, "mean of |Sobel| over the cell", "cheap", sobel, channels=NAMES, spread=NAMES)
)
