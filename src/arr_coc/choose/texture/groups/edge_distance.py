"""Distance of each cell to the nearest one with an edge."""

from __future__ import annotations

from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext
from arr_coc.choose.texture.filters import distance_to
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group

EDGE = 0.05
"""Mean Sobel length above which a cell has an edge."""


def edge_distance(context: ChannelContext) -> Tensor:
    """Distance to the nearest cell with an edge, [B, 1, H, W], as a share of the grid's diagonal.

    1 everywhere in an image without edges.
    """
    return distance_to(context.edges[:, 2] > EDGE).unsqueeze(1)


register_channel_group(
    ChannelGroup("edge_distance", 1, "Euclidean, to edges over 0.05", "cheap", edge_distance)
)
