"""The basis of the channels "components": fitted where a run needs one, and saved with the layer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from arr_coc import ARRCOCModel
from arr_coc.train.learner import fit_coarse_basis, needs_basis
from arr_coc.train.recipe import Recipe, make_recipe
from arr_coc.train.rows import open_rows
from arr_coc.train.trainer import build_learner
from near import near


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    layer = {"channels": ["rgb", "sobel", "components"]}
    return make_recipe(stage="relevance", steps=2, data=("world",), sizes=(256,), init=None, layer=layer)


@pytest.mark.slow
def test_a_run_fits_a_basis_learns_with_it_and_saves_it(recipe: Recipe, tmp_path: Path) -> None:
    taught = build_learner(recipe)
    basis = taught.model.layer.basis
    assert basis is not None
    assert not needs_basis(taught.model.layer)
    items = open_rows(recipe)
    plain = ARRCOCModel.from_pretrained()
    again = fit_coarse_basis(plain, [items[i].image for i in range(len(items))])
    assert near(basis.components, again.components)
    loss = taught.image_loss(items[0])
    loss.loss.backward()
    grads = [p.grad for p in taught.layer.parameters() if p.grad is not None]
    assert all(grad.isfinite().all() for grad in grads)
    assert any(grad.any() for grad in grads)
    taught.layer.trained = True
    taught.model.save_pretrained(tmp_path)
    loaded = ARRCOCModel.from_pretrained(tmp_path, strict=True)
    assert loaded.look(items[0].image, "What is the title?", budget=8, mode="sparse").kept == 8
    again = build_learner(recipe.model_copy(update={"init": str(tmp_path), "layer": {}}))
    assert torch.equal(again.model.layer.basis.components, basis.components)  # not fitted anew


@pytest.mark.slow
def test_a_layer_without_such_channels_needs_none() -> None:
    assert not needs_basis(ARRCOCModel.from_pretrained().layer)
