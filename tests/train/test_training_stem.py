"""Training a stem by a recipe: the cells it makes, what it learns from, and what stays as it is."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stem import FILE, Stem
from arr_coc.model import ARRCOCModel
from arr_coc.modes import route as saccade
from arr_coc.seam import gestalt
from arr_coc.seam.tower_compressor import TowerCompressor
from arr_coc.session import Session
from arr_coc.store.checkpoint import BUNDLED_ALLOCATOR
from arr_coc.train import learner as learning
from arr_coc.train.learner import Learner
from arr_coc.train.losses import relevance_loss
from arr_coc.train.recipe import Recipe, make_recipe
from arr_coc.train.rows import ImageRows, Row
from arr_coc.train.trainer import build_learner, train
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.training_pages import WorldRows
from near import near
from tiny import WIDTH, picture, save_tiny, tiny

IMAGE = picture(1, (48, 40))  # 6 x 5 cells
ROWS = (
    Row("What?", ("left",), ((0.0, 0.0, 16.0, 8.0),), "value", 1.0, "first"),
    Row("Where is the red ball now?", ("under it",), ((24.0, 16.0, 48.0, 40.0),), "title", 1.0, "second"),
)
ITEM = ImageRows(IMAGE, ROWS, "here")
QUESTIONS = [row.question for row in ROWS]
LAYER, TOWER = "arr_coc.safetensors", "tower4.safetensors"
CLOSE = 1e-5


def moved(module: Any, size: float = 0.05) -> Any:
    """A module off its start, where nets are mirrored or zero: every parameter counts."""
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i))
            parameter.add_(size * noise)
    return module


def recipe(**changes: Any) -> Recipe:
    settings = {"stage": "relevance", "steps": 1, "eyes": "stem", "target": "layer", "init": "x"}
    return make_recipe(**(settings | changes))


def allocator(trained: bool = True) -> ARRCOCModel:
    """A tiny model with a layer and a stem off their start."""
    built, layer = tiny("qwen3_vl"), moved(ARRCOCLayer(ARRCOCConfig(dim=WIDTH)))
    layer.trained = trained
    return ARRCOCModel(built.model, built.processor, layer, stem=moved(Stem(WIDTH)), strict=True)


def learner(trained: bool = True, **changes: Any) -> Learner:
    return Learner(allocator(trained), recipe(**changes))


def reached(module: nn.Module) -> set[str]:
    """Names of the parameters that have a gradient other than 0; every gradient is finite."""
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    assert all(g.isfinite().all() for g in grads.values())
    return {name for name, g in grads.items() if g.abs().sum() > 0}


def names(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_parameters()}


def same(first: Path, second: Path) -> bool:
    """Whether two files hold the same tensors, bit for bit."""
    one, other = load_file(first), load_file(second)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the share of images that the stem sees with a gestalt."""
    return lambda value: monkeypatch.setattr(learning, "WITH_GESTALT", value)


class TestSight:
    @torch.no_grad()
    def test_without_a_gestalt_it_sees_as_mode_sparse_does(self, share: Any) -> None:
        share(0.0)
        taught, model = learner(), allocator()
        maps = taught.relevance(Session(taught.model, IMAGE), None, QUESTIONS)
        for row, question in enumerate(QUESTIONS):
            look = model.session(IMAGE).look(question, budget=5, mode="sparse")
            assert near(maps.balanced[row], look.balanced[0])
            assert maps.tensions[row].tolist() == pytest.approx(list(look.tensions.values()), abs=CLOSE)

    @torch.no_grad()
    def test_with_a_gestalt_it_sees_as_mode_saccade_does(
        self, share: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        share(1.0)
        for module in (learning, gestalt):
            monkeypatch.setattr(module, "CELLS", 9)
        for module in (learning, saccade):
            monkeypatch.setattr(module, "SACCADE_TOKENS", 20)
        taught, model = learner(), allocator()
        session = Session(taught.model, IMAGE)
        maps = taught.relevance(session, None, QUESTIONS)
        for row, question in enumerate(QUESTIONS):
            look = model.session(IMAGE).look(question, budget=5, mode="saccade")
            assert near(maps.balanced[row], look.balanced[0])
            assert maps.tensions[row].tolist() == pytest.approx(list(look.tensions.values()), abs=CLOSE)
        share(0.0)
        assert (taught.relevance(session, None, QUESTIONS).balanced - maps.balanced).abs().max() > 100 * CLOSE

    def test_a_gestalt_is_always_coarser_than_the_image(
        self, share: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        share(1.0)
        taught, counts = learner(target="boxes"), []
        coarse = taught.model.adapter.coarse
        monkeypatch.setattr(
            taught.model.adapter,
            "coarse",
            lambda inputs, cells: counts.append(cells) or coarse(inputs, cells),
        )
        for size in ((16, 8), (48, 40), (96, 96)):
            taught.image_loss(replace(ITEM, image=picture(1, size), rows=ROWS[:1]))
        assert all(few <= cells / 4 for few, cells in zip(counts, (4, 30, 144), strict=True)), counts

    @pytest.mark.slow
    def test_half_of_the_images_have_a_gestalt_as_the_seed_says(self) -> None:
        taught = learner(target="boxes")
        session, drawn = Session(taught.model, IMAGE), []
        with torch.no_grad():
            pixels = taught.model.adapter.images(session.inputs("?"))[0]
            for _ in range(2):
                torch.manual_seed(3)
                drawn.append([taught.stem_cells(session, pixels)[2] is None for _ in range(40)])
        assert drawn[0] == drawn[1]
        assert 12 <= sum(drawn[0]) <= 28


class TestTargets:
    def test_boxes_need_no_encoded_image(self, share: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        share(0.0)
        taught = learner(target="boxes", init=None)

        def refuse(*_: object) -> None:
            raise AssertionError("an image was encoded")

        monkeypatch.setattr(taught.model.adapter, "features", refuse)
        figures = taught.image_loss(ITEM).figures
        assert {"loss", "relevance", "iou"} <= set(figures)
        assert len(figures["iou"]) == len(ROWS)

    def test_a_stem_that_sees_what_the_encoder_does_is_all_that_a_layer_asks_for(self, share: Any) -> None:
        share(0.0)
        taught = learner()
        session = Session(taught.model, IMAGE)
        with torch.no_grad():
            one = taught.model.adapter.features(session.inputs("?"))
            teacher = taught.relevance(session, one, QUESTIONS, from_stem=False)

        class Knowing(nn.Linear):
            def forward(self, *_: object) -> Tensor:
                return one.cell_tokens(0)[None] + 0 * self.weight.sum()

        seeing = taught.image_loss(ITEM).figures["relevance"][0]
        taught.model.stem = Knowing(1, 1)  # ty: ignore[invalid-assignment]
        knowing = taught.image_loss(ITEM).figures["relevance"][0]
        assert knowing == pytest.approx(float(relevance_loss(teacher.logits, teacher.balanced)), abs=CLOSE)
        assert knowing < seeing - 0.01

    @pytest.mark.parametrize("target", ["gradient", "attention", "layer"])
    def test_what_needs_no_labels(self, target: str) -> None:
        bare = tuple(replace(row, boxes=None, answers=()) for row in ROWS)
        taught = learner(target=target)
        taught.image_loss(replace(ITEM, rows=bare)).loss.backward()
        assert taught.model.stem is not None
        assert "head.1.weight" in reached(taught.model.stem)


class TestGradients:
    @pytest.mark.parametrize("target", ["boxes", "layer"])
    def test_they_reach_every_parameter_of_the_stem_and_no_other(self, share: Any, target: str) -> None:
        for with_gestalt, silent in ((1.0, set()), (0.0, {"gestalt.weight", "gestalt.bias"})):
            share(with_gestalt)
            taught = learner(target=target)
            loss, figures = taught.image_loss(ITEM)
            assert "compress" not in figures  # a frozen layer can't learn its budget
            loss.backward()
            stem = taught.model.stem
            assert stem is not None
            assert names(stem) - reached(stem) == silent
            rest = (*taught.layer.parameters(), *taught.model.base.parameters())
            assert all(p.grad is None and not p.requires_grad for p in rest)

    def test_an_untrained_layer_learns_with_the_stem(self) -> None:
        taught = learner(trained=False, target="boxes", init=None)
        taught.image_loss(ITEM).loss.backward()
        assert reached(taught.layer) == names(taught.layer)
        assert taught.model.stem is not None
        assert "head.1.weight" in reached(taught.model.stem)

    def test_an_image_that_teaches_nothing_has_a_loss_of_0_with_a_graph(self) -> None:
        taught = learner()
        loss, figures = taught.image_loss(replace(ITEM, rows=()))
        loss.backward()
        assert (loss.item(), figures) == (0.0, {})
        assert taught.model.stem is not None
        assert reached(taught.model.stem) == set()


@pytest.mark.slow
def test_it_learns_to_find_what_the_bundled_layer_finds(tmp_path: Path) -> None:
    for path in BUNDLED_ALLOCATOR.glob("arr_coc*"):  # without its stem
        shutil.copy(path, tmp_path)
    torch.manual_seed(0)
    taught = build_learner(recipe(init=str(tmp_path))).train()
    pages = WorldRows(2, (192,), 4)
    stem = taught.model.stem
    assert stem is not None
    optimizer = torch.optim.AdamW(stem.parameters(), lr=2e-3)
    curve = []
    for _ in range(8):
        loss, figures = taught([pages[0], pages[1]])
        curve.append((loss.item(), sum(figures["iou"]) / len(figures["iou"])))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert curve[-1][0] < 0.6 * curve[0][0]
    assert curve[-1][1] > 0.9 > curve[0][1]


@pytest.mark.slow
def test_a_stem_that_learns_on_no_longer_tells_foreign_pictures() -> None:
    model = build_learner(recipe(init="bundled")).model
    assert model.stem is not None
    assert model.stem.familiarity is None  # it was fitted to what the stem made of them before


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two drawn pages with questions and no labels."""
    folder = tmp_path_factory.mktemp("pages")
    lines = []
    for seed in range(2):
        page = draw_page(seed, (192, 160), "train", void=False)
        page.image.save(folder / f"{seed}.png")
        lines += [json.dumps({"image": f"{seed}.png", "question": q.text}) for q in page.questions[:3]]
    (folder / "questions.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, base: Path) -> Path:
    """A trained allocator with a compressor and no stem."""
    model, folder = allocator(), tmp_path_factory.mktemp("start")
    model.stem, model.base_name = None, str(base)
    model.compressors["tower4"] = moved(TowerCompressor(WIDTH, 4, 1))
    model.save_pretrained(folder)
    return folder


def run(base: Path, pages: Path, init: Path | None, **changes: Any) -> Recipe:
    settings: dict[str, Any] = {"model": str(base), "data": (f"folder:{pages}",), "steps": 4, "warmup": 1}
    settings |= {"save_every": 1, "log_every": 1, "workers": 0, "init": None if init is None else str(init)}
    return recipe(**(settings | changes))


class TestRun:
    @pytest.mark.slow
    def test_a_killed_run_ends_as_an_unbroken_one_and_only_the_stem_has_learned(
        self, base: Path, pages: Path, start: Path, tmp_path: Path
    ) -> None:
        settings, whole, killed = run(base, pages, start), tmp_path / "whole", tmp_path / "killed"
        done = train(settings, whole, progress=False)
        assert done["learned"] == sum(p.numel() for p in Stem(WIDTH).parameters())
        train(settings, killed, progress=False, stop_at=2)
        assert not (killed / FILE).exists()
        train(settings, killed, progress=False)
        assert same(whole / FILE, killed / FILE)
        assert same(whole / LAYER, start / LAYER)
        assert same(whole / TOWER, start / TOWER)

        model = ARRCOCModel.from_pretrained(whole, strict=True)
        assert model.layer.trained
        answer = model.ask(pages / "0.png", "What is the total?", budget=5, mode="sparse", max_new_tokens=2)
        assert (answer.kept, answer.mode, answer.note) == (5, "sparse", None)
        model.stem = None
        without = model.look(pages / "0.png", "What is the total?", budget=5, mode="sparse")
        assert not torch.allclose(answer.allocation.balanced, without.balanced, atol=1e-3)

        again = build_learner(run(base, pages, whole)).model.stem  # goes on from where it was
        saved = load_file(whole / FILE)
        assert again is not None
        assert all(torch.equal(p, saved[name].float()) for name, p in again.named_parameters())

    @pytest.mark.slow
    def test_from_nothing_the_layer_is_learned_as_well(self, base: Path, pages: Path, tmp_path: Path) -> None:
        train(run(base, pages, None, target="gradient", steps=2), tmp_path / "out", progress=False)
        model = ARRCOCModel.from_pretrained(tmp_path / "out", strict=True)
        assert model.layer.trained
        assert model.stem is not None
        before = ARRCOCLayer(model.layer.config).state_dict()
        assert any(not torch.equal(value, before[name]) for name, value in model.layer.state_dict().items())

    @pytest.mark.slow
    def test_in_half_precision_it_is_the_base_alone_that_is_half(
        self, base: Path, pages: Path, start: Path, tmp_path: Path
    ) -> None:
        settings = run(base, pages, start, precision="bfloat16", steps=1)
        taught = build_learner(settings).model
        assert taught.stem is not None
        assert (taught.base.dtype, taught.stem.head[1].weight.dtype) == (torch.bfloat16, torch.float32)
        assert train(settings, tmp_path / "out", progress=False)["steps"] == 1


class TestRefusals:
    def test_a_family_without_a_mode_that_would_use_it(self, pages: Path, tmp_path: Path) -> None:
        save_tiny("llava", tmp_path)
        with pytest.raises(ValueError, match="the vision tower of llava can't encode some cells alone"):
            build_learner(run(tmp_path, pages, None, target="gradient"))

    def test_an_untrained_teacher(self, base: Path, pages: Path, tmp_path: Path) -> None:
        model = allocator(trained=False)
        model.save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="is untrained: train it first"):
            build_learner(run(base, pages, tmp_path))
