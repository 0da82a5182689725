"""High-pass and low-pass content of each cell."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.filters import laplacian, surround
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def passes(context: ChannelContext) -> Tensor:
    """Mean |Laplacian| of each cell, and its brightness blurred over one cell, [B, 2, H, W]."""
    high = context.per_cell(laplacian(context.luma).abs_()) / 8
    return torch.cat((high, surround(context.cell_luma, 1.0)), dim=1)


register_channel_group(
    ChannelGroup(
        "passes", 2, "mean |Laplacian|; blurred brightness", "cheap", passes,
        channels=("high_pass", "low_pass"), spread=("high_pass",),
    )
)  # fmt: skip
