"""The two stages of the guide's training: what learns in each, how fast, from what, and by which loss."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from arr_coc.guide.guide import Guide
from arr_coc.guide.question import normal
from arr_coc_lab.teaching.crops import Crop
from arr_coc_lab.teaching.lessons import Crops, Examples
from arr_coc_lab.teaching.page import open_pages
from arr_coc_lab.teaching.recipe import GuideRecipe
from arr_coc_lab.teaching.relevance import Example, relevance_loss
from arr_coc_lab.teaching.spotting import spotting_loss
from arr_coc_lab.world.browser.vocabulary import common_words

LANGUAGES = ("en", "de", "fr", "es")
RIVALS = 256
"""Words beside those of a batch that compete for its slots."""

SPOTS = ("eyes", "words", "sharpness", "scale", "threshold")
"""Parts of the guide that learn to read print."""
READS = (*SPOTS, "glossary")
"""Parts that read it: with them the vectors of the glossary's words, which follow from those of words."""
Groups = list[dict[str, Any]]


class Stage(Protocol):
    """A stage: names of the guide's parts that learn, steps of warm-up, and the longest gradient."""

    @property
    def parts(self) -> Sequence[str]: ...

    @property
    def warmup(self) -> int: ...

    @property
    def longest(self) -> float: ...

    def groups(self, parameters: dict[str, nn.Parameter]) -> Groups:
        """Groups of parameters for AdamW."""
        ...

    def data(self) -> Crops | Examples:
        """What it is taught by."""
        ...

    def loss(self, guide: Guide, lesson: Any, step: int) -> tuple[Tensor, dict[str, float]]:
        """The loss of one lesson of a step."""
        ...


@dataclass(frozen=True)
class Spotting:
    """Eyes and words learn which word is printed where."""

    recipe: GuideRecipe
    parts: Sequence[str] = SPOTS
    warmup: int = 60
    longest: float = 2.0

    def groups(self, parameters: dict[str, nn.Parameter]) -> Groups:
        """The table of n-grams learns three times as fast: few of its rows are read in a step."""
        rate = self.recipe.spotting_lr
        table = [p for name, p in parameters.items() if "table" in name]
        rest = [p for name, p in parameters.items() if "table" not in name]
        return [
            {"params": table, "lr": 3 * rate, "weight_decay": 0.0},
            {"params": rest, "lr": rate, "weight_decay": 1e-3},
        ]

    def data(self) -> Crops:
        """Crops of pages; a guide that can read already needs no easy ones."""
        recipe = self.recipe
        easy = recipe.easy if recipe.init is None else 0
        return Crops(open_pages(recipe.pages), recipe.batch, recipe.size, recipe.seed, easy)

    def loss(self, guide: Guide, lesson: list[Crop], step: int) -> tuple[Tensor, dict[str, float]]:
        """The loss of a batch of crops."""
        rng = random.Random(f"spotting {self.recipe.seed} {step}")
        return spotting_loss(guide, lesson, rng.sample(_rivals(), RIVALS), rng)


@dataclass(frozen=True)
class Relevance:
    """The head learns where the answer is; eyes and words stay as they are."""

    recipe: GuideRecipe
    parts: Sequence[str] = ("reader", "pages", "head")
    warmup: int = 100
    longest: float = 1.0

    def groups(self, parameters: dict[str, nn.Parameter]) -> Groups:
        """All alike."""
        rate = self.recipe.relevance_lr
        return [{"params": [*parameters.values()], "lr": rate, "weight_decay": 1e-2, "betas": (0.9, 0.98)}]

    def data(self) -> Examples:
        """Windows of pages with questions."""
        recipe = self.recipe
        return Examples(open_pages(recipe.pages, recipe.drawn), recipe.windows, recipe.seed)

    def loss(self, guide: Guide, lesson: Example, step: int) -> tuple[Tensor, dict[str, float]]:
        """The loss of a window's questions."""
        return relevance_loss(guide, lesson)


STAGES: dict[str, type[Spotting] | type[Relevance]] = {"spotting": Spotting, "relevance": Relevance}


@lru_cache(maxsize=1)
def _rivals() -> list[str]:
    """Common words of some languages."""
    words = (normal(word) for language in LANGUAGES for word in common_words(language, "train")[:20_000])
    return list(dict.fromkeys(words))


def learning(guide: Guide, stage: Stage) -> dict[str, nn.Parameter]:
    """The parameters that learn in a stage; all other parts are frozen and as they are when used."""
    guide.train()
    for name, module in guide.named_children():
        module.train(name in stage.parts)
    for name, parameter in guide.named_parameters():
        parameter.requires_grad_(name.split(".")[0] in stage.parts)
    return {name: p for name, p in guide.named_parameters() if p.requires_grad}


@torch.no_grad()
def average(mean: Guide, guide: Guide, stage: Stage, step: int, most: float) -> None:
    """Move the running mean of what learns towards the weights; the first steps are forgotten faster.

    Args:
        mean: the running mean.
        guide: the weights.
        stage: whose parts learn.
        step: of the stage, from 1.
        most: share of the mean that stays.
    """
    share = 1 - min(most, step / (step + 9))
    for (name, old), new in zip(mean.state_dict().items(), guide.state_dict().values(), strict=True):
        if name.split(".")[0] in stage.parts:
            old.lerp_(new, share) if old.is_floating_point() else old.copy_(new)
