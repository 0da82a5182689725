"""Distance of each cell from the middle of the image."""

from __future__ import annotations

from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def eccentricity(context: ChannelContext) -> Tensor:
    """Distance of each cell's centre from the image's, [B, 1, H, W]; 1 at a corner of the image."""
    return context.eccentricity


register_channel_group(
    ChannelGroup("eccentricity", 1, "distance from the middle; 1 at a corner", "free", eccentricity)
)
