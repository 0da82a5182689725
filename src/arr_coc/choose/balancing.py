"""Balancing: one relevance map from three, by gates that depend on the question and the image.

logit[n] = steepness * (sum_i gate_i * logit(map_i[n]) + bias)          balanced = sigmoid(logit)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.choose.filters import unit
from arr_coc.choose.knowing import FOLD, fold, mirror_

FIXED_MIXTURE: tuple[float, float, float] = (0.25, 0.25, 0.5)  # untrained gates
WEAK_SALIENCY = 0.3  # a perspectival map whose maximum is below this has its gate lowered in proportion
MAX_EXPLORE = 0.5  # the largest share of a budget that may be spent on coverage


class Balance(NamedTuple):
    """The mixture of three maps: balanced [B, H, W], weights [B, 3], tensions [B, 3] as in `TENSIONS`."""

    balanced: Tensor
    weights: Tensor
    tensions: Tensor


def steepness(focus: Tensor) -> Tensor:
    """Return the factor on the logits: 1/4 when diversifying (0), 1 when neutral (0.5), 4 when focusing
    (1).
    """
    return 4.0 ** (2 * focus - 1)


def explore_share(explore: float | Tensor, exploit: Tensor) -> Tensor:
    """Return the share of the budget for coverage: `explore` when neutral, twice that at exploit 0, none at
    1.
    """
    return (2 * explore * (1 - exploit)).clamp(max=MAX_EXPLORE)


class AdaptiveTensionBalancer(nn.Module):
    """The mixture of the three maps, with gates and tensions from a small policy net.

    It reads the pooled question, the gestalt (mean token of a coarse view) and the maps' mean, maximum and
    spread. Tensions lie in [0, 1]:

    - compress (1) <-> particularize (0): how many cells an "auto" budget keeps (`budget.spent_tokens`);
    - exploit (1) <-> explore (0): how much of the budget goes to coverage (`explore_share`);
    - focus (1) <-> diversify (0): `steepness`, how sharply relevance separates cells.

    **Laws.** Untrained, the gates are FIXED_MIXTURE and the tensions neutral (0.5), whatever the input. A
    perspectival map whose maximum m is under WEAK_SALIENCY has its gate multiplied by m / WEAK_SALIENCY. A
    loss on compress and exploit trains the policy, never the scorers.
    """

    def __init__(self, dim: int, width: int = 16, preset: str = "net") -> None:
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
        """Return the balanced map in logits [B, H, W], the three maps' weights [B, 3] and the tensions [B,
        3].

        From `logits` [B, 3, H, W] and the pooled question [B, D]. `gestalt` [B, D] is the mean of the coarse
        view or of the vision tokens.
        """
        maps = logits.sigmoid().flatten(2)  # (B, 3, N)
        peak = maps.amax(-1)
        statistics = torch.stack((maps.mean(-1), peak, maps.std(-1, correction=0)), dim=1)  # (B, 3, 3)
        gates, tensions = self.decide(query, gestalt, statistics.flatten(1)).sigmoid().split(3, dim=-1)
        # Weak saliency lowers the gate of the perspectival map alone.
        strength = (peak[:, 1] / WEAK_SALIENCY).clamp(max=1.0)
        ones = torch.ones_like(strength)
        weights = gates * torch.stack((ones, strength, ones), dim=-1)
        mixed = torch.einsum("bkhw,bk->bhw", logits, weights) + self.bias
        return mixed * steepness(tensions[:, 2])[:, None, None], weights, tensions

    def decide(self, query: Tensor, gestalt: Tensor | None, statistics: Tensor) -> Tensor:
        """Three gates and three tensions before the sigmoid, [B, 6], from `statistics` [B, 9] of the maps."""
        inputs = [statistics]
        if not self.linear:
            parts = (query, torch.zeros_like(query) if gestalt is None else gestalt)
            inputs = [*(fold(unit(part)) for part in parts), statistics]
        # Compress and exploit (columns 3 and 4) read detached inputs, so that their losses end at the net.
        scoring = self.start + self._policy(*inputs)
        choosing = self.start + self._policy(*(x.detach() for x in inputs))
        return torch.cat((scoring[:, :3], choosing[:, 3:5], scoring[:, 5:]), dim=-1)

    def _policy(self, *inputs: Tensor) -> Tensor:
        *vectors, statistics = inputs
        projected = (F.linear(vector, self.project.weight) for vector in vectors)
        return self.policy(torch.cat((*projected, statistics), dim=-1))

    def forward(
        self, info: Tensor, persp: Tensor, partic: Tensor, query: Tensor, gestalt: Tensor | None = None
    ) -> Balance:
        """Return the balance of three maps [B, H, W] in [0, 1]; `query` and `gestalt` as in `mix`."""
        maps = torch.stack((info, persp, partic), dim=1).float()
        logits, weights, tensions = self.mix(torch.logit(maps, eps=1e-4), query, gestalt)
        return Balance(logits.sigmoid(), weights, tensions)
