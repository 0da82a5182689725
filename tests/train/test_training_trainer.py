"""The trainer: what it writes, that a killed run ends as an unbroken one, and what it says of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from arr_coc.model import ARRCOCModel
from arr_coc.train import learner as learner_module
from arr_coc.train.folder import check, last_checkpoint
from arr_coc.train.recipe import Recipe, load_recipe, make_recipe
from arr_coc.train.trainer import build_learner, train
from arr_coc_lab.evaluate.methods import BUNDLED_SCORER
from arr_coc_lab.world import draw_page
from learning import recipe_of
from tiny import tiny

WEIGHTS = "arr_coc.safetensors"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four drawn pages with questions and boxes, as `arr-coc draw` writes them."""
    folder = tmp_path_factory.mktemp("pages")
    lines = []
    for seed in range(4):
        page = draw_page(seed, (192, 160), "train", void=False)
        page.image.save(folder / f"{seed}.png")
        for q in page.questions[:3]:
            lines.append(
                {"image": f"{seed}.png", "question": q.text, "answer": q.answer, "boxes": q.evidence}
            )
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def recipe(base: Path, pages: Path, **changes: object) -> Recipe:
    """A short run on the tiny base and the drawn pages."""
    settings: dict = {
        "stage": "answers",
        "model": str(base),
        "data": (f"jsonl:{pages}",),
        "budgets": (6,),
        "steps": 6,
        "warmup": 1,
        "save_every": 2,
        "log_every": 1,
        "workers": 0,
    }
    return recipe_of(**(settings | changes))


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["straight-through", "gumbel", "reinforce", "scores-only"])
def test_a_killed_run_ends_as_an_unbroken_one(
    base: Path, pages: Path, tmp_path: Path, estimator: str
) -> None:
    settings = recipe(base, pages, estimator=estimator)
    train(settings, tmp_path / "whole", progress=False)
    train(settings, tmp_path / "killed", progress=False, stop_at=3)
    assert last_checkpoint(tmp_path / "killed") is not None
    assert not (tmp_path / "killed" / WEIGHTS).exists()
    done = train(settings, tmp_path / "killed", progress=False)
    assert done["steps"] == 6
    whole, killed = (load_file(tmp_path / name / WEIGHTS) for name in ("whole", "killed"))
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    curves = [
        [
            (line["step"], line["loss"])
            for line in map(json.loads, (tmp_path / name / "curve.jsonl").open())
            if "loss" in line
        ]
        for name in ("whole", "killed")
    ]
    assert curves[0] == curves[1]
    assert [step for step, _ in curves[0]] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_line_of_the_log_over_a_break_is_that_of_an_unbroken_run(
    base: Path, pages: Path, tmp_path: Path
) -> None:
    """A line is the mean of three steps, and the run is cut off and goes on between them."""
    settings = recipe(base, pages, log_every=3, save_every=2)
    whole = train(settings, tmp_path / "whole", progress=False)
    for stop_at in (2, 3, 4):
        train(settings, tmp_path / "killed", progress=False, stop_at=stop_at)
    killed = train(settings, tmp_path / "killed", progress=False)
    curves = [
        [line for line in map(json.loads, (tmp_path / name / "curve.jsonl").open()) if "loss" in line]
        for name in ("whole", "killed")
    ]
    assert [line["step"] for line in curves[0]] == [3, 6]
    assert curves[0] == curves[1]
    assert whole["loss"] == killed["loss"]


def test_a_checkpoint_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    for step, whole in ((2, True), (4, True), (6, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if whole:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-4"


@pytest.mark.slow
def test_another_seed_gives_other_weights(base: Path, pages: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        drawn = recipe(base, pages, data=("world",), sizes=(256,), steps=2, seed=seed)
        train(drawn, tmp_path / str(seed), progress=False)
    first, second = (load_file(tmp_path / str(seed) / WEIGHTS) for seed in (0, 1))
    assert any(not torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_what_was_trained_is_loaded_and_answers(base: Path, pages: Path, tmp_path: Path) -> None:
    done = train(recipe(base, pages), tmp_path / "out", progress=False)
    model = ARRCOCModel.from_pretrained(tmp_path / "out", strict=True)
    assert model.layer.trained
    assert done["learned"] == sum(p.numel() for p in model.layer.parameters())
    assert model.ask(pages / "0.png", "What is it?", budget=5, max_new_tokens=2).kept == 5
    assert (tmp_path / "out" / "curve.png").stat().st_size > 1000
    assert not list((tmp_path / "out").glob("checkpoint-*"))


@pytest.mark.slow
def test_a_lora_learns_is_kept_beside_the_layer_and_full_is_stock(
    base: Path, pages: Path, tmp_path: Path
) -> None:
    train(recipe(base, pages, lora=2, base_lr=0.1), tmp_path / "out", progress=False)
    assert {"adapter_config.json", "adapter_model.safetensors", WEIGHTS} <= {
        f.name for f in (tmp_path / "out").iterdir()
    }
    model = ARRCOCModel.from_pretrained(tmp_path / "out", strict=True)
    stock = ARRCOCModel.from_pretrained(base, strict=True)
    made = stock.session(pages / "0.png").inputs("What is it?")
    with torch.no_grad():
        want = stock.base(**made).logits
        assert torch.equal(model(mode="full", **made).logits, want)
        assert not torch.allclose(model(budget=1.0, **made).logits, want, atol=1e-3)
    before = dict(stock.base.named_parameters())
    after = {n.replace(".base_layer", ""): p for n, p in model.base.named_parameters() if "lora_" not in n}
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.slow
def test_top_layers_learn_and_the_changed_base_is_written_whole(
    base: Path, pages: Path, tmp_path: Path
) -> None:
    train(recipe(base, pages, top_layers=1, base_lr=0.01), tmp_path / "out", progress=False)
    model = ARRCOCModel.from_pretrained(tmp_path / "out", strict=True)
    stock = tiny("qwen3_vl").model
    moved = {
        name.split("layers.")[1].split(".")[0] if "language_model.layers." in name else name
        for (name, p), q in zip(model.base.named_parameters(), stock.parameters(), strict=True)
        if not torch.equal(p, q)
    }
    assert moved == {str(len(stock.model.language_model.layers) - 1)}


@pytest.mark.slow
def test_a_folder_of_images_with_questions_alone_is_enough(base: Path, pages: Path, tmp_path: Path) -> None:
    bare = [json.loads(line) for line in (pages / "questions.jsonl").open()]
    for image in {line["image"] for line in bare}:
        Image.open(pages / image).save(tmp_path / image)
    lines = [json.dumps({"image": line["image"], "question": line["question"]}) for line in bare]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    for target in ("gradient", "attention"):
        settings = recipe(base, pages, data=(f"folder:{tmp_path}",), target=target, steps=2)
        done = train(settings, tmp_path / target, progress=False)
        assert done["steps"] == 2
        assert (tmp_path / target / WEIGHTS).is_file()


@pytest.mark.slow
def test_boxes_of_coco_teach(base: Path, pages: Path, tmp_path: Path) -> None:
    (tmp_path / "val2017").mkdir()
    (tmp_path / "annotations").mkdir()
    Image.open(pages / "0.png").save(tmp_path / "val2017" / "0.png")
    content = {
        "images": [{"id": 1, "file_name": "0.png"}],
        "categories": [{"id": 5, "name": "stamp"}],
        "annotations": [{"id": 9, "image_id": 1, "category_id": 5, "bbox": [40, 30, 64, 32]}],
    }
    (tmp_path / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    (tmp_path / "questions.jsonl").write_text(
        '{"image_id": 1, "question": "Where is the stamp?", "category": "stamp"}'
    )
    settings = recipe(base, pages, stage="relevance", data=(f"coco:{tmp_path}",), steps=60, log_every=4)
    train(settings, tmp_path / "out", progress=False)
    curve = [json.loads(line) for line in (tmp_path / "out" / "curve.jsonl").open()]
    assert curve[-2]["iou"] > 0.9 > 0.6 > curve[0]["iou"]


@pytest.mark.slow
def test_query_blind_rival_learns_on_the_same_rows(base: Path, pages: Path, tmp_path: Path) -> None:
    train(recipe(base, pages, allocator="query-blind"), tmp_path / "out", progress=False)
    weights = load_file(tmp_path / "out" / "query_blind.safetensors")
    assert {name: tuple(p.shape) for name, p in weights.items()} == {
        "query.weight": (16, 32),
        "query.bias": (16,),
        "key.weight": (16, 32),
        "key.bias": (16,),
    }


def test_query_blind_rival_goes_on_with_the_bundled_scorer() -> None:
    taught = build_learner(load_recipe("query-blind", {"init": "bundled"}))
    bundled, state = load_file(BUNDLED_SCORER), taught.layer.scorer.state_dict()
    assert bundled.keys() <= state.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in bundled.items())


def test_a_run_from_before_a_field_came_goes_on_with_its_default(tmp_path: Path) -> None:
    settings = make_recipe(stage="relevance", steps=5)
    older = {name: value for name, value in settings.to_dict().items() if name != "eyes"}
    (tmp_path / "recipe.json").write_text(json.dumps(older))
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "trainer_state.json").write_text("{}")
    check(tmp_path, settings)
    with pytest.raises(ValueError, match="holds a run with eyes = 'encoded', not 'stem'"):
        check(tmp_path, make_recipe(stage="relevance", steps=5, eyes="stem"))


class TestRefusals:
    @pytest.mark.slow
    def test_another_recipe_in_the_same_folder(self, base: Path, pages: Path, tmp_path: Path) -> None:
        train(recipe(base, pages), tmp_path / "out", progress=False, stop_at=1)
        with pytest.raises(ValueError, match=r"lr = 0.003, not 0.5; choose another folder"):
            train(recipe(base, pages, lr=0.5), tmp_path / "out", progress=False)

    @pytest.mark.slow
    def test_a_finished_run_is_not_overwritten(self, base: Path, pages: Path, tmp_path: Path) -> None:
        train(recipe(base, pages, steps=1), tmp_path / "out", progress=False)
        with pytest.raises(ValueError, match="holds a finished run"):
            train(recipe(base, pages, steps=1), tmp_path / "out", progress=False)

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [0, 1])
    def test_a_broken_image_is_named_with_file_and_line(
        self, base: Path, pages: Path, tmp_path: Path, workers: int
    ) -> None:
        lines = (pages / "questions.jsonl").read_text().splitlines()
        for image in pages.glob("*.png"):
            (tmp_path / image.name).write_bytes(image.read_bytes())
        (tmp_path / "broken.png").write_bytes(b"no image")
        broken = json.dumps({"image": "broken.png", "question": "What?", "answer": "it"})
        (tmp_path / "questions.jsonl").write_text("\n".join([*lines, broken]))
        settings = recipe(base, pages, data=(f"jsonl:{tmp_path}",), workers=workers, target="gradient")
        with pytest.raises(ValueError, match=rf"questions.jsonl, line {len(lines) + 1}") as caught:
            train(settings, tmp_path / "out", progress=False)
        assert "broken.png" in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.slow
    def test_out_of_memory_names_the_row_and_the_remedy(
        self, base: Path, pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise torch.OutOfMemoryError("out of memory")

        monkeypatch.setattr(learner_module.Learner, "image_loss", full)
        with pytest.raises(ValueError, match=r"out of memory at .*questions.jsonl, line \d+ .*max_pixels"):
            train(recipe(base, pages), tmp_path / "out", progress=False)

    def test_more_top_layers_than_there_are(self, base: Path, pages: Path) -> None:
        with pytest.raises(ValueError, match=r"top_layers 99 is more than the \d"):
            build_learner(recipe(base, pages, top_layers=99))
