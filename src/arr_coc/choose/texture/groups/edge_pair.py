"""Edges and their absence in each cell."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def edge_pair(context: ChannelContext) -> Tensor:
    """Mean Sobel length e of each cell, and 1 - e, [B, 2, H, W]."""
    length = context.edges[:, 2:]
    return torch.cat((length, 1 - length), dim=1)


register_channel_group(
    ChannelGroup(
        "edge_pair", 2, "Sobel length e, and 1 - e", "cheap", edge_pair,
        channels=("edges", "no_edges"), spread=("edges",), salient=("edges",),
    )
)  # fmt: skip
