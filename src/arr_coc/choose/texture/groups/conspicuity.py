"""How much each cell stands out, as one map."""

from __future__ import annotations

from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.groups.saliency import saliency
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def conspicuity(context: ChannelContext) -> Tensor:
    """1 - prod(1 - s) over the three maps s of the group "saliency", [B, 1, H, W]."""
    return 1 - (1 - saliency(context).clamp(0, 1)).prod(dim=1, keepdim=True)


register_channel_group(
    ChannelGroup(
        "conspicuity", 1, "1 - prod(1 - s) over saliency", "cheap", conspicuity, salient=("conspicuity.0",)
    )
)
