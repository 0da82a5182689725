"""Relevance of each cell's content in the frames before: in the latest one, and as a running mean."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def relevance_memory(context: ChannelContext) -> Tensor:
    """Warped previous relevance and smoothed relevance, [B, 2, H, W].

    Both follow the shift of the picture since. `previous_relevance` stands for a history of one frame, and
    the latest map of `relevance_history` for the frame before, where only one of the two is supplied.
    Neutral: 0 for a still, after a cut, in what has just come into the picture, and without relevance.
    """
    latest, history = context.previous_relevance, context.relevance_history
    latest = history[:, -1] if latest is None and history is not None else latest
    if context.clip is None or latest is None:
        return torch.zeros(len(context.image), 2, *context.grid, device=context.image.device)
    smoothed = context.clip.smoothed(latest[:, None] if history is None else history)
    return torch.stack((context.clip.followed(latest), smoothed), dim=1)


register_channel_group(
    ChannelGroup(
        "relevance_memory", 2, "shifted by phase correlation; 0.7 old + 0.3 new until a cut", "cheap",
        relevance_memory, channels=("warped_relevance", "smoothed_relevance"),
        reads={"previous_frames", "previous_relevance", "relevance_history"},
        neutral="0 for a still, after a cut and without relevance",
    )
)  # fmt: skip
