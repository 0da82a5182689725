"""The net of learned compressors: strided convolutions that halve the sides of a grid."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

SIDES = {4: 2, 16: 4}
"""Cells along each side of the block that becomes one coarse token, by the cells of the block."""


class Halvings(nn.Module):
    """Strided 3x3 convolutions that each halve both sides, then a linear layer initialised to zero.

    Args:
        dim: D, width of the tokens.
        width: channels between the convolutions.
        times: number of convolutions.
    """

    def __init__(self, dim: int, width: int, times: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(width if i else dim, width, 3, stride=2, padding=1) for i in range(times)
        )
        self.head = nn.Conv2d(width, dim, 1)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """[T, D, H, W], any sides -> [T, D, ceil(H / 2^times), ...], in the dtype of the parameters.

        Sides that don't divide are padded with copies of their edge, evenly on both ends.
        """
        side = 2 ** len(self.convs)
        more = [-length % side for length in (x.shape[-1], x.shape[-2])]
        edges = [amount for m in more for amount in (m // 2, m - m // 2)]
        x = F.pad(x.to(self.head.weight.dtype), edges, mode="replicate")
        for conv in self.convs:
            x = F.gelu(conv(x))
        return self.head(x)
