"""Mean colour of each cell: red, green, blue."""

from __future__ import annotations

from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def rgb(context: ChannelContext) -> Tensor:
    """Mean RGB of each cell, [B, 3, H, W]."""
    return context.colour


register_channel_group(
    ChannelGroup("rgb", 3, "mean of the cell", "cheap", rgb, channels=("red", "green", "blue"))
)
