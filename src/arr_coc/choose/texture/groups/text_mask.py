"""Whether print stands in each cell."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def text_mask(context: ChannelContext) -> Tensor:
    """The largest evidence of print in each cell, [B, 1, H, W].

    Raises:
        ValueError: there is no `text_evidence`.
    """
    if context.text_evidence is None:
        raise ValueError("text_mask needs text_evidence: how likely print stands at each place")
    return F.adaptive_max_pool2d(context.text_evidence[:, None], context.grid)


register_channel_group(
    ChannelGroup(
        "text_mask", 1, "most likely print, by a detector", "costly", text_mask, needs={"text_evidence"},
        price="a detector's pass over the pixels, 1.7 x mvp13 with the guide's eyes; the pooling is free",
    )
)  # fmt: skip
