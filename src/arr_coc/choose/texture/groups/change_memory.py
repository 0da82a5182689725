"""How far each cell is from the last change in the clip, and for how long it has not changed."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.texture.clip import CHANGED
from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.filters import distance_to
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group

HALF = 4.0
"""Frames after which age is 0.5."""


def change_memory(context: ChannelContext) -> Tensor:
    """Distance to the last change and age, [B, 2, H, W].

    The distance to the nearest cell that changed since the frame before, as a share of the grid's diagonal; 1
    everywhere where none did. Age is n / (n + 4) for content that has stood n frames unchanged, as far back
    as `previous_frames` go (at most 8). Neutral: distance 1 and age 0 for a still.
    """
    if context.clip is None:
        blank = torch.zeros(len(context.image), 1, *context.grid, device=context.image.device)
        return torch.cat((1 - blank, blank), dim=1)
    distance = distance_to(context.clip.changes[:, -1] > CHANGED)
    ages = context.clip.ages
    return torch.stack((distance, ages / (ages + HALF)), dim=1)


register_channel_group(
    ChannelGroup(
        "change_memory", 2, "Euclidean, to changes over 0.02; frames n / (n + 4)", "cheap", change_memory,
        channels=("change_distance", "age"), reads={"previous_frames"},
        neutral="distance 1 and age 0 for a still",
    )
)  # fmt: skip
