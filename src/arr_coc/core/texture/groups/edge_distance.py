"""Distance of each cell to the nearest one with an edge."""

from __future__ import annotations

import torch
from torch import Tensor

from arr_coc.core.texture.context import ChannelContext
from arr_coc.core.texture.registry import ChannelGroup, register_channel_group

EDGE = 0.05
"""Mean Sobel length above which a cell has an edge."""


def edge_distance(context: ChannelContext) -> Tensor:
    """Distance to the nearest cell with an edge, [B, 1, H, W], as a share of the grid's diagonal.

    1 everywhere in an image without edges. Exact and separable: the least squared distance along rows
    first, then along columns.
    """
    far = float(context.grid[0] ** 2 + context.grid[1] ** 2)
    y, x = (torch.arange(n, device=context.image.device, dtype=torch.float32) for n in context.grid)
    start = torch.where(context.edges[:, 2] > EDGE, 0.0, far)  # (B, H, W)
    rows = (start[:, :, None, :] + (x[:, None] - x) ** 2).amin(-1)  # (B, H, W)
    squared = (rows[:, None] + ((y[:, None] - y) ** 2)[None, :, :, None]).amin(2)  # (B, H, W)
    return (squared / far).clamp(max=1).sqrt().unsqueeze(1)


register_channel_group(
    ChannelGroup("edge_distance", 1, "Euclidean, to edges over 0.05", "cheap", edge_distance)
)
