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

Compress and exploit choose cells and score none: a loss on them teaches the policy, never the scorers.

Untrained, the gates are FIXED_MIXTURE and the tensions neutral, whatever the question and the image;
only the law of weak saliency holds from the start: a perspectival map whose maximum m is under 0.3 has
its gate multiplied by m / 0.3.

For ablations (`BALANCERS`): "policy" is all of this; "blind" withholds the image from the policy net,
which then reads the question alone; "fixed" never asks it, so gates and tensions are learnable
constants. The law of weak saliency holds in all three. A scorer that does not count (`SCORERS`) has gate
0, and its map's statistics are withheld. The parameters are the same ones in every ablation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.knowing import FOLD, fold, mirror_, unit

FIXED_MIXTURE: tuple[float, float, float] = (0.25, 0.25, 0.5)
"""Untrained gates of information, perspectival and participatory."""
SCORERS: tuple[str, str, str] = ("information", "perspectival", "participatory")
BALANCERS: tuple[str, str, str] = ("policy", "blind", "fixed")
WEAK_SALIENCY = 0.3
MAX_EXPLORE = 0.5
"""The largest share of a budget that may be spent on coverage."""


class Balance(NamedTuple):
    """One map from three: balanced [B, H, W], weights [B, 3], tensions [B, 3] as in `TENSIONS`."""

    balanced: Tensor
    weights: Tensor
    tensions: Tensor


def check_kind(kind: str) -> str:
    """The kind of balancer, if it is one of `BALANCERS`.

    Raises:
        ValueError: it is not.
    """
    if kind not in BALANCERS:
        raise ValueError(f"unknown balancer {kind!r}; choose one of {BALANCERS}")
    return kind


def check_scorers(scorers: Sequence[str]) -> tuple[str, ...]:
    """The scorers as a tuple, if they are one or more of `SCORERS`, each named once.

    Raises:
        ValueError: they are not.
    """
    if not isinstance(scorers, list | tuple) or not 0 < len(scorers) == sum(n in scorers for n in SCORERS):
        raise ValueError(f"scorers {scorers!r} must be a list of one or more of {SCORERS}, each once")
    return tuple(scorers)


def steepness(focus: Tensor) -> Tensor:
    """Factor on the logits: 1/4 when diversifying (0), 1 when neutral (0.5), 4 when focusing (1)."""
    return 4.0 ** (2 * focus - 1)


def explore_share(explore: float, exploit: Tensor) -> Tensor:
    """Share of the budget for coverage: `explore` when neutral, twice that at exploit 0, none at 1."""
    return (2 * explore * (1 - exploit)).clamp(max=MAX_EXPLORE)


class AdaptiveTensionBalancer(nn.Module):
    """Gates and tensions from a small policy net, or from map statistics alone (`preset="linear"`)."""

    def __init__(
        self,
        dim: int,
        width: int = 16,
        preset: str = "net",
        kind: str = "policy",
        scorers: Sequence[str] = SCORERS,
    ) -> None:
        """Build for questions and gestalt vectors of `dim`; one shared matrix takes them to `width`.

        Args:
            dim: D, width of the question's embeddings and of the gestalt vector.
            width: What the shared matrix takes them to.
            preset: "net" or "linear".
            kind: One of `BALANCERS`; "blind" and "fixed" are the same thing for `preset="linear"`.
            scorers: Which of `SCORERS` count.

        Raises:
            ValueError: the kind is unknown, or the scorers are not one or more of `SCORERS`.
        """
        super().__init__()
        self.counted: Tensor
        self.kind = check_kind(kind)
        counted = [name in check_scorers(scorers) for name in SCORERS]
        self.register_buffer("counted", torch.tensor(counted, dtype=torch.float32), persistent=False)
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
        statistics = torch.stack((maps.mean(-1), peak, maps.std(-1, correction=0)), dim=1) * self.counted
        gates, tensions = self._decide(query, gestalt, statistics.flatten(1)).sigmoid().split(3, dim=-1)
        strength = (peak[:, 1] / WEAK_SALIENCY).clamp(max=1.0)
        ones = torch.ones_like(strength)
        weights = gates * torch.stack((ones, strength, ones), dim=-1) * self.counted
        mixed = torch.einsum("bkhw,bk->bhw", logits, weights) + self.bias
        return mixed * steepness(tensions[:, 2])[:, None, None], weights, tensions

    def _decide(self, query: Tensor, gestalt: Tensor | None, statistics: Tensor) -> Tensor:
        """Gates and tensions before the sigmoid, [B, 6], from statistics [B, 9] of the maps."""
        if self.kind == "fixed":
            return self.start.expand(len(statistics), 6)
        if self.kind == "blind":
            gestalt, statistics = None, torch.zeros_like(statistics)
        seen = (query, torch.zeros_like(query) if gestalt is None else gestalt, statistics)
        scoring = self.start + self._ask(*seen)
        choosing = self.start + self._ask(*(x.detach() for x in seen))
        return torch.cat((scoring[:, :3], choosing[:, 3:5], scoring[:, 5:]), dim=-1)

    def _ask(self, query: Tensor, gestalt: Tensor, statistics: Tensor) -> Tensor:
        """What the policy net adds to `start`, [B, 6]."""
        if self.linear:
            return self.policy(statistics)
        seen = (F.linear(fold(unit(x)), self.project.weight) for x in (query, gestalt))
        return self.policy(torch.cat((*seen, statistics), dim=-1))

    def forward(
        self, info: Tensor, persp: Tensor, partic: Tensor, query: Tensor, gestalt: Tensor | None = None
    ) -> Balance:
        """Balance three maps [B, H, W] in [0, 1]; `query` and `gestalt` as in `mix`."""
        maps = torch.stack((info, persp, partic), dim=1).float()
        logits, weights, tensions = self.mix(torch.logit(maps, eps=1e-4), query, gestalt)
        return Balance(logits.sigmoid(), weights, tensions)
