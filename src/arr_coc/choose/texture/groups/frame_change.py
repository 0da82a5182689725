"""Change of each cell since the frame before, beyond the shift of the whole picture, and a flag of cuts."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def frame_change(context: ChannelContext) -> Tensor:
    """Frame difference and scene-cut flag, [B, 2, H, W].

    The difference is mean |change of brightness| once the shift is undone ("motion" is that without undoing
    it); the flag is 1 in every cell where the mean difference of the frames exceeds 0.3. Neutral: 0 for a
    still.
    """
    if context.clip is None:
        return torch.zeros(len(context.image), 2, *context.grid, device=context.image.device)
    cut = context.clip.cuts[:, -1, None, None].expand(-1, *context.grid)
    return torch.stack((context.clip.changes[:, -1], cut.float()), dim=1)


register_channel_group(
    ChannelGroup(
        "frame_change", 2, "mean |difference| after the shift; mean |difference| > 0.3", "cheap",
        frame_change, channels=("frame_difference", "scene_cut"), salient=("frame_difference",),
        reads={"previous_frames"}, neutral="0 for a still",
    )
)  # fmt: skip
