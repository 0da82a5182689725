"""Familiarity: whether a picture looks like those that a stem was taught on.

    Familiarity(dim)(tokens [N, D]) -> how much more foreign than familiar, above 0: foreign

A small model answers about any picture, with the same confidence about one of a kind that it never saw. What
the stem makes of the cells tells the two apart: the mean and the spread of its tokens over the picture go
through one linear unit, which was fitted to pictures of the stem's own world and to others
(`making/familiarity.py` for the bundled one).

Law: the score depends on the tokens of one picture alone, and not on their order.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FOREIGN = "this picture looks unlike all that this model was taught on, so its answer is probably wrong"
"""What is said beside an answer about a foreign picture or clip."""
GUIDED = "the guide chose the cells, since this picture looks unlike all that the allocator was trained on"
"""What is said beside cells of one that the guide chose in place of a trained allocator."""
FARTHEST = 8.0
"""Standard deviations at which a statistic is cut off, so that no single one decides alone."""


class Familiarity(nn.Module):
    """A linear unit over the mean and the spread of a picture's tokens.

    Args:
        dim: D, the width of the tokens.
    """

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2 * dim))
        self.register_buffer("scale", torch.ones(2 * dim))
        self.register_buffer("weight", torch.zeros(2 * dim))
        self.register_buffer("bias", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        """The score of one picture, a scalar; above 0 it is foreign.

        Args:
            tokens: [N, D], the stem's tokens of all cells, without a gestalt under them.
        """
        return self.score(statistics(tokens))

    def normalised(self, values: Tensor) -> Tensor:
        """Statistics [..., 2 D] in standard deviations of the own world, cut off."""
        mean, scale = self.mean.float(), self.scale.float()  # a stem can be kept in half precision
        return ((values - mean) / scale).clamp(-FARTHEST, FARTHEST)

    def score(self, values: Tensor) -> Tensor:
        """The scores of statistics, [..., 2 D] -> [...]; above 0 their picture is foreign."""
        return self.normalised(values) @ self.weight.float() + self.bias.float()


def statistics(tokens: Tensor) -> Tensor:
    """Mean and standard deviation over the cells, [N, D] -> [2 D]; of a single cell the deviation is 0."""
    tokens = tokens.float()
    return torch.cat([tokens.mean(0), tokens.std(0, correction=0)])
