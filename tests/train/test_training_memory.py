"""What saves memory changes no number: layers computed again, added gradients, products in bfloat16."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.model import ARRCOCModel
from arr_coc.train.learner import Learner, recomputed
from arr_coc.train.parts import PartsLearner
from arr_coc.train.recipe import make_recipe
from arr_coc.train.rows import ImageRows, Row
from arr_coc.train.trainer import train
from learning import recipe_of
from tiny import WIDTH, picture, tiny

ROWS = (
    Row("What?", ("left",), ((0.0, 0.0, 16.0, 8.0),), "value", 1.0, "first"),
    Row("Where is it?", ("under it",), ((24.0, 16.0, 48.0, 40.0),), "title", 1.0, "second"),
)
ITEM = ImageRows(picture(1, (48, 40)), ROWS, "here", number=0)
WEIGHTS = "arr_coc.safetensors"


def learner(stage: str, checkpointing: bool, **changes: Any) -> Learner:
    built = tiny("qwen3_vl")
    base = copy.deepcopy(built.model)
    model = ARRCOCModel(base, built.processor, ARRCOCLayer(ARRCOCConfig(dim=WIDTH)), strict=True)
    settings = {"stage": stage, "steps": 1, "relevance": 0.0, "compress": 0.0, "budgets": (8,)} | changes
    recipe = recipe_of(**settings, checkpointing=checkpointing)
    torch.manual_seed(1)  # of new LoRAs
    return (Learner if stage == "answers" else PartsLearner)(model, recipe)


def step(taught: Learner) -> tuple[float, dict[str, torch.Tensor], int]:
    """Loss, gradients, and the bytes that are kept for the way back."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    torch.manual_seed(0)
    taught.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = taught.image_loss(ITEM).loss
    loss.backward()
    grads = {name: p.grad for name, p in taught.named_parameters() if p.grad is not None}
    return float(loss.detach()), grads, sum(kept.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "changes"),
    [
        ("answers", {}),
        ("answers", {"lora": 2}),
        ("partial", {"lora": 2}),
        ("coarse", {"lora": 2, "hint": 0.3}),
    ],
)
def test_layers_computed_again_give_the_same_from_less(stage: str, changes: dict[str, Any]) -> None:
    plain, again = learner(stage, False, **changes), learner(stage, True, **changes)
    loss, grads, kept = step(plain)
    same, others, less = step(again)
    assert same == pytest.approx(loss, abs=1e-6)
    assert grads.keys() == others.keys()
    assert any(bool(grad.any()) for grad in grads.values())
    for name, grad in grads.items():
        torch.testing.assert_close(others[name], grad, atol=1e-6, rtol=1e-4)
    assert less < 0.8 * kept
    assert not any(module.training for module in again.model.base.modules())


def test_marks_are_taken_back_even_after_an_error() -> None:
    base = tiny("qwen3_vl").model
    marks = [dict(vars(module)) for module in base.modules()]
    with pytest.raises(RuntimeError), recomputed(base):
        raise RuntimeError
    assert [dict(vars(module)) for module in base.modules()] == marks


def test_a_model_without_such_layers_is_refused() -> None:
    with (
        pytest.raises(ValueError, match="no layer of Linear can be computed again"),
        recomputed(torch.nn.Linear(2, 2)),
    ):
        pass


def run(base: Path, rows: Path, out: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    settings = {"stage": "answers", "model": str(base), "data": (f"jsonl:{rows}",), "steps": 2, "warmup": 0,
                "workers": 0, "budgets": (6, 3), "estimator": "gumbel"}  # fmt: skip
    facts = train(make_recipe(**settings | changes), out, progress=False, device="cpu")
    return facts, load_file(out / WEIGHTS)


@pytest.mark.slow
def test_added_gradients_are_those_of_a_larger_batch(base: Path, rows: Path, tmp_path: Path) -> None:
    one, batch = run(base, rows, tmp_path / "batch", batch=2)
    two, added = run(base, rows, tmp_path / "added", accumulate=2)
    assert one["steps"] == two["steps"] == 2
    start = ARRCOCLayer(ARRCOCConfig(dim=WIDTH)).state_dict()
    moved = max(float((batch[name] - start[name]).abs().max()) for name in batch)
    assert moved > 1e-4
    assert max(float((batch[name] - added[name]).abs().max()) for name in batch) < 1e-2 * moved


@pytest.mark.slow
def test_mixed_precision_multiplies_in_bfloat16_and_learns_in_float32(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    types: set[torch.dtype] = set()
    costs = Learner._costs

    def watched(self: Learner, *args: Any) -> torch.Tensor:
        types.add(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32)
        assert {p.dtype for p in self.model.base.parameters()} == {torch.float32}
        return costs(self, *args)

    monkeypatch.setattr(Learner, "_costs", watched)
    plain, _ = run(base, rows, tmp_path / "plain")
    assert types == {torch.float32}
    types.clear()
    mixed, weights = run(base, rows, tmp_path / "mixed", precision="mixed")
    assert types == {torch.bfloat16}
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    assert mixed["train_loss"] == pytest.approx(plain["train_loss"], rel=0.05)
    assert mixed["train_loss"] != plain["train_loss"]
