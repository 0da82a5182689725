"""Two processes that hold the base model together learn what one does; and each has half of its layers."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

import divided_runs
from arr_coc.model import ARRCOCModel
from arr_coc.train import sharding
from arr_coc.train.learner import IDLE, Learner
from arr_coc.train.parts import PartsLearner
from arr_coc.train.processes import FSDP
from arr_coc.train.rows import ImageRows
from arr_coc.train.sharding import check_divided, outermost
from arr_coc.train.trainer import build_learner, train, write_learned
from launching import launch
from learning import recipe_of
from tiny import picture, tiny

STEPS = 2
ALONE: dict[str, Any] = {"relevance": 0.0, "compress": 0.0}
RECIPES: dict[str, dict[str, Any]] = {
    "stem": {"stage": "relevance", "eyes": "stem", "target": "gradient"},
    "answers": {"stage": "answers", "estimator": "gumbel", "lora": 2, "accumulate": 2} | ALONE,
    "top": {"stage": "answers", "top_layers": 1, "base_lr": 1e-3} | ALONE,
    "partial": {"stage": "partial", "lora": 2, "checkpointing": True} | ALONE,
    "tower": {"stage": "tower", "lora": 2} | ALONE,
}
CUT = "partial"
"""The run that is cut off after a step, and goes on."""
LAYERS = 5
"""Of the tiny model: two decoder layers and three blocks of the vision tower."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Images of two sizes with one, two or three questions: in turns with answers and without.

    So processes have other questions, other numbers of kept sets, and one of them has the model answer.
    """
    specs = []
    for kind in ("jsonl", "folder"):
        folder = tmp_path_factory.mktemp(kind)
        lines = []
        for i in range(4):
            picture(i, (96, 80) if i % 2 else (48, 40)).save(folder / f"{i}.png")
            for number in range(1 + (i if kind == "jsonl" else 2 * i) % 3):
                line = {"image": f"{i}.png", "question": f"What is it, {i} or {number}?"}
                line |= {"answer": "ab"[: 1 + number]} if kind == "jsonl" else {}
                lines.append(line | {"boxes": [[8 * i, 0, 8 * i + 16, 16]]})
        (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        specs.append(f"{kind}:{folder}")
    return tuple(specs)


def settings(base: Path, data: tuple[str, ...], name: str) -> dict[str, Any]:
    common = {"model": str(base), "data": data, "steps": STEPS, "warmup": 0, "workers": 0, "seed": 1}
    return common | {"budgets": (6, 3), "save_every": 1} | RECIPES[name]


@pytest.fixture(scope="module")
def divided(base: Path, data: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all recipes, learned by two processes."""
    folder = tmp_path_factory.mktemp("divided")
    runs = [{"name": name, "recipe": settings(base, data, name), "stop_at": None} for name in RECIPES]
    runs.insert(0, {"name": CUT, "recipe": settings(base, data, CUT), "stop_at": 1})
    (folder / "runs.json").write_text(json.dumps(runs))
    launch([divided_runs.__file__, str(folder / "runs.json")], {FSDP: "true"}, limit=900)
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """All weights of a run's folder, by file and name."""
    files = {path.relative_to(folder): load_file(path) for path in folder.rglob("*.safetensors")}
    return {f"{file}: {name}": tensor for file, part in files.items() for name, tensor in part.items()}


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The Euclidean distance of two sets of weights."""
    return sum(float((one[key].float() - other[key].float()).square().sum()) for key in one) ** 0.5


@pytest.mark.slow
@pytest.mark.skipif(not sharding.DIVIDES_CPUS, reason="this torch divides nothing over CPUs")
@pytest.mark.parametrize("name", RECIPES)
def test_it_learns_what_one_process_does(
    divided: Path, base: Path, data: tuple[str, ...], tmp_path: Path, name: str
) -> None:
    """With as many images a step; what is saved is whole."""
    recipe = recipe_of(**settings(base, data, name) | {"batch": 2})
    alone = train(recipe, tmp_path / "one", progress=False, device="cpu")
    torch.manual_seed(recipe.seed)
    write_learned(build_learner(recipe), tmp_path / "begin", {"recipe": name, "steps": 0, "images": {}})
    results = [json.loads((divided / f"{name}.{rank}.json").read_text()) for rank in range(2)]
    for result in results:
        assert result["steps"] == STEPS
        assert result["learned"] == alone["learned"]
        assert result["launched"] == "true"  # the environment is as it was
        assert result["layers"] == LAYERS - (name == "top")
        assert result["held"] <= 0.51 * result["all"]
    losses = [result["train_loss"] for result in results]  # each of its own images
    assert losses[0] != losses[1]
    if name != CUT:  # its second start has the loss of that alone
        assert sum(losses) / 2 == pytest.approx(alone["train_loss"], rel=2e-4)
    assert sum(result["held"] for result in results) == results[0]["all"]
    one, two, start = (weights(folder) for folder in (tmp_path / "one", divided / name, tmp_path / "begin"))
    assert one.keys() == two.keys()
    # Of all weights together: Adam makes a step of rounding where a single one has hardly any gradient.
    moved, apart = distance(one, start), distance(one, two)
    assert moved > 1e-3
    assert apart < 5e-3 * moved, (apart, moved)
    assert not list((divided / name).glob("checkpoint-*"))  # it is finished


def test_a_torch_that_divides_nothing_over_cpus_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "DIVIDES_CPUS", False)
    with pytest.raises(ValueError, match=r"torch \d\S+ can't divide a model over CPUs: install a newer one"):
        sharding.make_mesh(torch.device("cpu"))


def test_a_launch_that_divides_nothing_is_an_error() -> None:
    model = copy.deepcopy(tiny("qwen3_vl").model)
    layers = outermost(model)
    assert len(layers) == LAYERS
    with pytest.raises(ValueError, match=f"{LAYERS} of {LAYERS} layers of Qwen3VL.* are whole in every proc"):
        check_divided(model, layers)
    with pytest.raises(ValueError, match="all layers of Linear are whole"):
        check_divided(nn.Linear(2, 2), outermost(nn.Linear(2, 2)))


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "llava_onevision", "gemma3"])
def test_layers_of_both_halves_are_divided(family: str) -> None:
    model = tiny(family).model
    layers = outermost(model)
    names = [name for name, part in model.named_modules() if part in layers]
    assert layers == [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
    assert any("language_model" in name for name in names)
    assert any("vis" in name for name in names)


@pytest.mark.parametrize("stage", ["answers", "partial"])
def test_an_image_without_questions_computes_what_others_do_and_teaches_nothing(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, calls = tiny("qwen3_vl"), []
    model = ARRCOCModel(copy.deepcopy(built.model), built.processor, strict=True)
    kind = Learner if stage == "answers" else PartsLearner
    learner = kind(model, recipe_of(stage=stage, steps=1, lora=2, budgets=(6,), **ALONE))
    for layer in outermost(model.base):
        layer.register_forward_pre_hook(lambda module, args: calls.append(type(module).__name__))
    image = picture(1, (48, 40))
    loss, figures = learner([ImageRows(image, (), "here", number=0)])
    assert (float(loss.detach()), figures, calls) == (0.0, {}, [])
    monkeypatch.setattr(learner, "divided", True)  # of one process
    loss, figures = learner([ImageRows(image, (), "here", number=0)])
    assert (float(loss.detach()), figures) == (0.0, {})
    idle, calls[:] = list(calls), []
    loss.backward()
    assert not any(bool(p.grad.any()) for p in learner.parameters() if p.grad is not None)
    learner([ImageRows(image, (IDLE,), "here", number=0)])
    assert idle == calls
    assert len(calls) >= LAYERS
