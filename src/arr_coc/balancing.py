"""Balancing: three maps of relevance become one, by gates that depend on the question and on the image.

    logit[n] = steepness * (sum_i gate_i * logit(map_i[n]) + bias)          balanced = sigmoid(logit)

Gates are sigmoids: all three may be high, and a trained participatory map alone can drive the result. A
policy net reads the pooled question, the gestalt vector and the mean, maximum and spread of the three
maps.

Three tensions in [0, 1], neutral at 0.5, each with one effect:
- compress (1) <-> particularize (0): how many tokens an "auto" budget spends
  (`attending.expected_tokens`);
- exploit (1) <-> explore (0): how much of the budget goes to coverage (`explore_share`);
- focus (1) <-> diversify (0): `steepness`, how sharply relevance separates cells.

Untrained, the gates are FIXED_MIXTURE and the tensions neutral, whatever the question and the image;
only the law of weak saliency holds from the start: a perspectival map whose maximum m is under 0.3 has
its gate multiplied by m / 0.3.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.knowing import FOLD, fold, mirror_, unit

FIXED_MIXTURE: tuple[float, float, float] = (0.25, 0.25, 0.5)
"""Untrained gates of information, perspectival and participatory."""
WEAK_SALIENCY = 0.3
MAX_EXPLORE = 0.5
"""The largest share of a budget that may be spent on coverage."""


class Balance(NamedTuple):
    """One map from three: balanced [B, H, W], weights [B, 3], tensions [B, 3] as in `TENSIONS`."""

    balanced: Tensor
    weights: Tensor
    tensions: Tensor


def steepness(focus: Tensor) -> Tensor:
    """Factor on the logits: 1/4 when diversifying (0), 1 when neutral (0.5), 4 when focusing (1)."""
    return 4.0 ** (2 * focus - 1)


def explore_share(explore: float, exploit: Tensor) -> Tensor:
    """Share of the budget for coverage: `explore` when neutral, twice that at exploit 0, none at 1."""
    return (2 * explore * (1 - exploit)).clamp(max=MAX_EXPLORE)


class AdaptiveTensionBalancer(nn.Module):
    """Gates and tensions from a small policy net, or from map statistics alone (`preset="linear"`)."""

    def __init__(self, dim: int, width: int = 16, preset: str = "net") -> None:
        """Build for questions and gestalt vectors of `dim`; one shared matrix takes them to `width`."""
        super().__init__()
        self.start = nn.Parameter(torch.cat((torch.logit(torch.tensor(FIXED_MIXTURE)), torch.zeros(3))))
        self.bias = nn.Parameter(torch.zeros(()))
        self.linear = preset == "linear"
        if self.linear:
            self.policy = nn.Linear(9, 6, bias=False)
            nn.init.zeros_(self.policy.weight)
            return
        self.project = nn.Linear(min(dim, FOLD), width, bias=False)
        self.policy = nn.Sequential(nn.Linear(2 * width + 9, 16), nn.Tanh(), nn.Linear(16, 6))
        mirror_(self.policy[0], self.policy[2])

    def mix(
        self, logits: Tensor, query: Tensor, gestalt: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The balance in logits, for training.

        Args:
            logits: [B, 3, H, W] of information, perspectival and participatory.
            query: [B, D], the pooled question.
            gestalt: [B, D], mean of the coarse view or of the vision tokens; None before anything is
                encoded.

        Returns:
            logits [B, H, W] of the balanced map, weights [B, 3], tensions [B, 3].
        """
        maps = logits.sigmoid().flatten(2)
        peak = maps.amax(-1)
        facts = torch.cat((maps.mean(-1), peak, maps.std(-1, correction=0)), dim=-1)  # (B, 9)
        if not self.linear:
            gestalt = torch.zeros_like(query) if gestalt is None else gestalt
            seen = (F.linear(fold(unit(x)), self.project.weight) for x in (query, gestalt))
            facts = torch.cat((*seen, facts), dim=-1)
        gates, tensions = (self.start + self.policy(facts)).sigmoid().split(3, dim=-1)
        strength = (peak[:, 1] / WEAK_SALIENCY).clamp(max=1.0)
        weights = gates * torch.stack(
            (torch.ones_like(strength), strength, torch.ones_like(strength)), dim=-1
        )
        mixed = torch.einsum("bkhw,bk->bhw", logits, weights) + self.bias
        return mixed * steepness(tensions[:, 2])[:, None, None], weights, tensions

    def forward(
        self, info: Tensor, persp: Tensor, partic: Tensor, query: Tensor, gestalt: Tensor | None = None
    ) -> Balance:
        """Balance three maps [B, H, W] in [0, 1]; `query` and `gestalt` as in `mix`."""
        maps = torch.stack((info, persp, partic), dim=1).float()
        logits, weights, tensions = self.mix(torch.logit(maps, eps=1e-4), query, gestalt)
        return Balance(logits.sigmoid(), weights, tensions)
