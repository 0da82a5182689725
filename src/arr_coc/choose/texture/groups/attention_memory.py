"""Where earlier questions about the image looked."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.texture.clip import OLD
from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def attention_memory(context: ChannelContext) -> Tensor:
    """The running mean of `attention_history`, 0.7 old and 0.3 new, [B, 1, H, W].

    Neutral: 0 before the first question. A caller that shows another picture passes no history.
    """
    history = context.attention_history
    if history is None:
        return torch.zeros(len(context.image), 1, *context.grid, device=context.image.device)
    mean = history[:, 0]
    for each in history.unbind(1)[1:]:
        mean = OLD * mean + (1 - OLD) * each
    return mean[:, None]


register_channel_group(
    ChannelGroup(
        "attention_memory", 1, "0.7 old + 0.3 new over questions", "cheap", attention_memory,
        channels=("attention_history",), reads={"attention_history"},
        neutral="0 before the first question",
    )
)  # fmt: skip
