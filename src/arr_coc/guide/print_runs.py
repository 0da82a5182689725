"""Runs of print: what stands together in one line is needed as a whole or not at all.

    runs = print_runs(light)                 once per picture
    complete(judgement.logits, runs)         per question, places of a run raised to its mean

The head decides place by place, and of an answer that it found it often leaves out an end. A run is ink of
one row of places without a gap of more than GAP: a word, a few, a value, a label.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.guide.eyes import block_max
from arr_coc.guide.head import PLACE

COLUMN = 4
"""Width in px of the columns that ink is looked for in."""
STEP = 0.15
"""Luminance that ink differs by from the next pixel."""
GAP = 4
"""Columns without ink that a run may cross: more than a space of small print, less than one of a table."""
LONGEST = 128
"""Columns of the longest run: longer ones are rules and pictures."""
COVERED = 2
"""Columns of a run that make a place one of its own."""


@torch.no_grad()
def print_runs(light: Tensor) -> Tensor:
    """The runs of print of a picture.

    Args:
        light: luminance, float [1, 1, h, w] in [0, 1], sides multiples of 32 px.

    Returns:
        Long [h / 16, w / COLUMN]: the number of each column's run, from 1; 0 where there is none.
    """
    right = F.pad((light[..., 1:] - light[..., :-1]).abs(), (0, 1))
    below = F.pad((light[..., 1:, :] - light[..., :-1, :]).abs(), (0, 0, 0, 1))
    ink = (block_max(torch.maximum(right, below), (PLACE[0], COLUMN)) > STEP).float()[0]
    wide = F.max_pool2d(F.pad(ink, (GAP, GAP)), (1, GAP + 1), 1)
    joined = -F.max_pool2d(-wide, (1, GAP + 1), 1)[0] > 0.5  # gaps of up to GAP columns are closed
    first = joined & ~F.pad(joined, (1, 0))[:, :-1]
    numbers = first.flatten().cumsum(0).view(joined.shape) * joined
    return numbers * (torch.bincount(numbers.flatten()) <= LONGEST)[numbers]


def complete(places: Tensor, runs: Tensor) -> Tensor:
    """Raise every place of a run to the log of the run's mean odds; none is lowered.

    Args:
        places: logits of places, float [Q, h, w].
        runs: of the same picture, [h, w * n] for n columns of a place.
    """
    per_place = runs.shape[-1] // places.shape[-1]
    top = places.amax((-2, -1), keepdim=True)
    odds = (places - top).exp().repeat_interleave(per_place, -1).flatten(1)
    index = runs.flatten()
    columns = torch.bincount(index).clamp_min(1)
    sums = odds.new_zeros(len(places), len(columns)).index_add_(1, index, odds)
    means = (sums / columns).clamp_min(1e-30).log()
    means[:, 0] = -torch.inf
    lifted = means[:, index].view(*places.shape, per_place).topk(COVERED, -1).values[..., -1]
    return torch.maximum(places, lifted + top)
