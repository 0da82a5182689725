"""Change of each cell since the frame before."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def motion(context: ChannelContext) -> Tensor:
    """Mean absolute change of brightness since the latest frame before, [B, 1, H, W]; 0 for a still."""
    if context.previous_luma is None:
        return torch.zeros(len(context.image), 1, *context.grid, device=context.image.device)
    return context.per_cell((context.luma - context.previous_luma).abs_())


register_channel_group(
    ChannelGroup(
        "motion", 1, "mean |change of brightness|; 0 for a still", "cheap", motion, salient=("motion.0",),
        reads={"previous_frames"}, neutral="0 for a still",
    )
)  # fmt: skip
