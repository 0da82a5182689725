"""Learning for some steps, in tests."""

from __future__ import annotations

from typing import Any

import torch

from arr_coc.train.recipe import STAGES, Recipe, make_recipe


def losses(taught: Any, item: Any, rate: float, steps: int) -> list[float]:
    """The loss of one image before each of some steps on it."""
    optimizer = torch.optim.Adam([p for p in taught.parameters() if p.requires_grad], rate)
    values = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = taught.image_loss(item).loss
        loss.backward()
        optimizer.step()
        values.append(float(loss.detach()))
    return values


def recipe_of(**settings: Any) -> Recipe:
    """A recipe of those settings that its stage has: tests of several stages share them."""
    fields = STAGES[settings["stage"]].model_fields
    return make_recipe(**{name: value for name, value in settings.items() if name in fields})
