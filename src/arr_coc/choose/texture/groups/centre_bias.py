"""Prior of looking at the middle of the image."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def centre_bias(context: ChannelContext) -> Tensor:
    """Gaussian of the eccentricity e, exp(-4 e^2), [B, 1, H, W]."""
    return torch.exp(-4 * context.eccentricity**2)


register_channel_group(ChannelGroup("centre_bias", 1, "exp(-4 eccentricity^2)", "free", centre_bias))
