"""The recipe `tower`: what teaches a compressor inside the vision tower, and what it leaves alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from arr_coc.model import ARRCOCModel
from arr_coc.seam.gestalt import pooled
from arr_coc.session import Session
from arr_coc.train.parts import PartsLearner, feature_loss, tower_gestalt
from arr_coc.train.recipe import built_in, load_recipe, make_recipe
from arr_coc.train.rows import ImageRows, Row
from arr_coc.train.trainer import train
from learning import losses
from tiny import picture, save_tiny, tiny

IMAGE = picture(3, (80, 96))
ROWS = (
    Row("What?", ("left",), None, "value", 1.0, "first"),
    Row("Where is it now?", (), None, "title", 1.0, "second"),
)
ITEM = ImageRows(IMAGE, ROWS, "here", number=0)


def learner(family: str = "qwen3_vl", **changes: Any) -> PartsLearner:
    built = tiny(family)
    model = ARRCOCModel(copy.deepcopy(built.model), built.processor)
    return PartsLearner(model, make_recipe(stage="tower", steps=1, **({"lora": 2} | changes)))


def reached(taught: PartsLearner) -> set[str]:
    """The parameters that a loss has reached."""
    return {name for name, p in taught.named_parameters() if p.grad is not None and bool(p.grad.any())}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "qwen3_5"])
def test_merging_and_lora_learn_and_nothing_else(family: str) -> None:
    taught = learner(family)
    before = copy.deepcopy(taught.model.base.state_dict())
    result = taught.image_loss(ITEM)
    result.loss.backward()
    names = reached(taught)
    for name in ("tower4", "tower16"):
        assert any(each.startswith(f"model.compressors.{name}.net") for each in names)
        assert any(f"{name}/" in each for each in names if each.startswith("model.loras.weights"))
        assert {f"{name} echo", f"{name} answer"} <= result.figures.keys()
    assert all(name.startswith(("model.compressors.tower", "model.loras.weights.tower")) for name in names)
    after = taught.model.base.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_one_compressor_learns_alone() -> None:
    taught = learner(compressors=("tower16",))
    taught.image_loss(ITEM).loss.backward()
    assert "tower4" not in taught.model.compressors
    assert not any("tower4" in name for name in reached(taught))


@pytest.mark.slow
def test_it_learns_what_the_whole_tower_makes() -> None:
    taught = learner(answer=0.0, compressors=("tower4",))
    values = losses(taught, ITEM, 0.01, 15)
    assert values[-1] < 0.8 * values[0]


@torch.no_grad()
def test_what_the_average_of_the_whole_tower_teaches() -> None:
    model = learner().model
    whole = model.adapter.features(Session(model, IMAGE).inputs("?"))
    taught = pooled(whole, 4)
    made = tower_gestalt(model, "tower4", Session(model, IMAGE).inputs("?"))
    assert made.grids == taught.grids
    assert feature_loss(taught, taught, whole) == 0
    assert feature_loss(made, taught, whole) > 0


@pytest.mark.slow
def test_the_recipe_makes_an_allocator_with_both(tmp_path: Path) -> None:
    save_tiny("qwen3_vl", tmp_path / "base")
    changes = {"model": str(tmp_path / "base"), "init": None, "sizes": (128,), "questions": 2, "steps": 1}
    train(load_recipe("tower", changes | {"workers": 0}), tmp_path / "out", progress=False)
    model = ARRCOCModel.from_pretrained(tmp_path / "out")
    assert {"tower4", "tower16"} <= set(model.compressors) & set(model.loras.kinds)
    answer = model.ask(picture(1, (96, 96)), "What?", mode="compress", gestalt="tower16", max_new_tokens=2)
    assert answer.read == 9
    assert answer.note is None or "gestalt" not in answer.note
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "tower4.safetensors" in card
    assert "tower16/adapter_model.safetensors" in card


def test_a_tower_of_one_piece_is_refused() -> None:
    with pytest.raises(ValueError, match="can't be run in two halves: use gestalt 'pool4'"):
        learner("llava")


def test_it_is_built_in() -> None:
    assert "tower" in built_in()
    with pytest.raises(ValueError, match="lora is 0, but stage 'tower' teaches one"):
        make_recipe(stage="tower", steps=1)
    with pytest.raises(ValueError, match="answer is 0, so stage 'tower' learns nothing"):
        make_recipe(stage="tower", steps=1, lora=2, answer=0.0, echo=0.0)
    assert make_recipe(stage="tower", steps=1, lora=2, answer=0.0).echo
