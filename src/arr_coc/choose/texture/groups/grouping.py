"""Spread inside each cell, and mean brightness of its neighbourhood."""

from __future__ import annotations

import torch
from kornia.filters import box_blur
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def grouping(context: ChannelContext) -> Tensor:
    """Twice the standard deviation of brightness in the cell, and its mean over 3x3 cells, [B, 2, H, W]."""
    mean = context.per_cell(context.luma)
    variance = context.per_cell(context.luma**2) - mean**2
    # Rounding leaves some 1e-7 of variance in a uniform cell, which must count as none.
    spread = 2 * (variance - 1e-6).relu().sqrt()
    return torch.cat((spread, box_blur(mean, 3, border_type="replicate")), dim=1)


register_channel_group(
    ChannelGroup(
        "grouping", 2, "2 x standard deviation in the cell; mean over 3x3 cells", "cheap", grouping,
        channels=("spread", "group_mean"), spread=("spread",),
    )
)  # fmt: skip
