"""Place of each cell in the image: y, x."""

from __future__ import annotations

from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def position(context: ChannelContext) -> Tensor:
    """Centre of each cell as a share of the height and of the width, [B, 2, H, W]."""
    return context.position


register_channel_group(
    ChannelGroup("position", 2, "(i + 1/2) / cells", "free", position, channels=("y", "x"))
)
