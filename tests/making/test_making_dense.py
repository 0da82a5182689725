"""The lesson `dense`: what a kept token of a drawn page is to say, as a loss of a recipe.

Run: pytest tests/making/test_making_dense.py
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from arr_coc.model import ARRCOCModel
from arr_coc.session import Session
from arr_coc.training.drawn import WorldRows
from arr_coc.training.parts import PartsLearner
from arr_coc.training.recipe import load_recipe
from making.dense import dense

RECIPE = Path(__file__).parents[2] / "making" / "partial.toml"


@pytest.fixture(scope="module")
def item():
    """A drawn page of some sixty cells."""
    return replace(WorldRows(1, (256,), 4)[0], number=0)


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(allocator=None)


@torch.no_grad()
def test_tokens_of_the_whole_page_say_more_than_those_of_other_cells(item, model) -> None:
    tokens = model.adapter.features(Session(model, item.image).inputs("?")).cell_tokens(0)
    keep = torch.arange(1, len(tokens), 2)
    right, wrong = dense(item, keep, tokens[keep]), dense(item, keep, tokens[keep].flip(0))
    assert 2 * right < wrong


def test_what_was_not_drawn_has_no_words(item) -> None:
    tokens = torch.randn(3, 192, requires_grad=True)
    loss = dense(replace(item, where="photo.png, line 1"), torch.arange(3), tokens)
    loss.backward()
    assert loss == 0
    assert tokens.grad is not None
    assert not tokens.grad.any()


def test_the_recipe_of_the_bundled_lora_has_all_four_losses(item, model) -> None:
    recipe = load_recipe(RECIPE, {"budgets": (12,), "questions": 4})
    taught = PartsLearner(model, recipe)
    loss = taught.image_loss(item)
    assert {"echo", "answer", "hint", "dense"} <= loss.figures.keys()
    total = sum(value for name, (value,) in loss.figures.items() if name != "loss")
    assert loss.figures["loss"] == pytest.approx([total])
    loss.loss.backward()
    reached = {name for name, p in taught.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert reached
    assert all("partial" in name for name in reached)
