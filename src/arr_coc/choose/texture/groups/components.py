"""What a vision encoder sees of each cell in a coarse view: sixteen principal components of its features."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.texture.basis import COMPONENTS
from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group


def components(context: ChannelContext) -> Tensor:
    """Components of `coarse_features` by `basis`, linear between places, [B, 16, H, W]; 0.5 is the mean.

    Raises:
        ValueError: an input is missing, the basis is for other features, or of another number of components.
    """
    if context.coarse_features is None or context.basis is None:
        raise ValueError("components needs coarse_features and the basis of their encoder")
    if context.basis.count != COMPONENTS:
        raise ValueError(
            f"components needs a basis of {COMPONENTS} components, got {context.basis.count}; fit one so"
        )
    coarse = context.basis.project(context.coarse_features)
    return F.interpolate(coarse, size=context.grid, mode="bilinear", align_corners=False)


register_channel_group(
    ChannelGroup(
        "components", COMPONENTS, "PCA of unit features; +-2.5 deviations", "costly", components,
        needs={"coarse_features", "basis"},
        price="an encoder's pass over a coarse view, none where a mode makes a gestalt; then 0.02 x mvp13",
    )
)  # fmt: skip
