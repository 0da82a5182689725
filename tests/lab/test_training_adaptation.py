"""An adaptation end to end: what it writes, that it goes on, what it refuses."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from arr_coc.model import ARRCOCModel
from arr_coc.train.rows import rest_of
from arr_coc_lab import adaptation
from arr_coc_lab.adaptation import Adaptation, adapt, data_spec, parts_of, survey
from arr_coc_lab.gain import gain, in_words
from arr_coc_lab.results.files import read_results
from tiny import picture

pytestmark = pytest.mark.slow


def folder_of(place: Path, **more: Any) -> Path:
    """Three pictures with two questions each."""
    place.mkdir(exist_ok=True)
    lines = []
    for seed in range(3):
        picture(seed).save(place / f"{seed}.png")
        for question, box in (("Left?", [0, 0, 10, 48]), ("Right?", [38, 0, 48, 48])):
            lines.append({"image": f"{seed}.png", "question": question, "boxes": [box]} | more)
    (place / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("data") / "boxed", answer="yes")


def wanted(base: Path, data: Path, **changes: Any) -> Adaptation:
    return Adaptation(**({"model": str(base), "data": str(data), "steps": 2, "budgets": (6,)} | changes))


@pytest.fixture(scope="module")
def finished(
    base: Path, boxed: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """An adaptation that was done at one go, and what it returned."""
    out = tmp_path_factory.mktemp("adapted") / "out"
    return out, adapt(wanted(base, boxed), out, progress=False)


class TestWhole:
    def test_it_writes_an_allocator_that_answers(self, finished: tuple[Path, Any]) -> None:
        model = ARRCOCModel.from_pretrained(finished[0])
        assert model.layer.trained
        assert model.stem is not None
        assert len(model.look(picture(9), "Left?", budget=6).keep) == 6

    def test_it_measures_before_and_after_on_images_it_never_learned_from(
        self, finished: tuple[Path, Any], boxed: Path
    ) -> None:
        out, result = finished
        parts = out / adaptation.PARTS
        before, after = (read_results(parts / f"{name}.jsonl") for name in ("before", "after"))
        assert {record["image"] for record in before[1] + after[1]} == {"jsonl:2.png"}
        assert before[0]["weights"]["arr-coc"] != after[0]["weights"]["arr-coc"]
        data = adaptation.open_data(f"jsonl:{boxed}")[1]
        assert {example.image.name for example in rest_of(data, 3)} == {"0.png", "1.png"}
        assert result["gain"]["questions"] == 2
        assert {"random@6", "even grid@6", "oracle@6"} <= result["gain"]["recall"].keys()
        assert {"before", "after", "interval"} <= result["gain"]["recall"]["arr-coc@6"].keys()

    def test_the_card_has_its_figures(self, finished: tuple[Path, Any]) -> None:
        card = (finished[0] / "README.md").read_text()
        assert "2 questions about 1 images" in card
        assert "recipe `relevance`" in card
        assert "recipe `stem`" in card
        assert str(finished[0]) not in card
        assert (finished[0] / adaptation.PICTURE).stat().st_size > 1000

    def test_a_finished_part_is_not_done_again(
        self, finished: tuple[Path, Any], base: Path, boxed: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("it learns again")

        monkeypatch.setattr(adaptation, "train", refuse)
        again = adapt(wanted(base, boxed), finished[0], progress=False)
        assert again["gain"] == finished[1]["gain"]


def test_one_that_was_cut_off_goes_on_to_the_same_result(
    base: Path, boxed: Path, tmp_path: Path, finished: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = adaptation.train

    def cut(recipe: Any, out: Path, **more: Any) -> Any:
        if recipe.eyes == "stem":
            raise KeyboardInterrupt
        return train(recipe, out, **more)

    monkeypatch.setattr(adaptation, "train", cut)
    with pytest.raises(KeyboardInterrupt):
        adapt(wanted(base, boxed), tmp_path / "out", progress=False)
    monkeypatch.setattr(adaptation, "train", train)
    lines: list[str] = []
    result = adapt(wanted(base, boxed), tmp_path / "out", progress=False, say=lines.append)
    assert "relevance: finished already" in lines
    assert result["gain"] == finished[1]["gain"]


def test_without_boxes_or_answers_the_models_own_reading_teaches(base: Path, tmp_path: Path) -> None:
    data = folder_of(tmp_path / "data", boxes=[])
    result = adapt(wanted(base, data, recipes=("distill",)), tmp_path / "out", progress=False)
    assert list(result["parts"]) == ["distill"]
    assert result["gain"]["metric"] == "agreement"
    assert result["gain"]["recall"] == {}
    assert result["gain"]["score"]["full"]["before"] == 1  # it agrees with itself
    assert [name for name, _ in in_words(result["gain"])] == ["arr-coc@6", "arr-coc sparse@6"]


def test_what_is_learned_already_goes_on_and_nothing_is_lost(boxed: Path, tmp_path: Path) -> None:
    settings = wanted(Path("bundled"), boxed, steps=1, recipes=("relevance",), questions=1)
    adapt(settings, tmp_path / "out", progress=False)
    learned, bundled = ARRCOCModel.from_pretrained(tmp_path / "out"), ARRCOCModel.from_pretrained()
    assert len(learned.layer.trained_on) == len(bundled.layer.trained_on) + 1
    assert learned.stem is not None
    assert learned.loras.kinds == bundled.loras.kinds
    assert learned.compressors.keys() == bundled.compressors.keys()


def test_of_another_images_question_it_is_said_what_is_kept(base: Path, tmp_path: Path) -> None:
    """Ten pictures, so that two are held out; ink and another question's choice stand beside ours."""
    lines = []
    for seed in range(10):
        picture(seed).save(tmp_path / f"{seed}.png")
        line = {"image": f"{seed}.png", "question": f"Where is {seed}?", "boxes": [[0, 0, 10, 48]]}
        lines.append(json.dumps(line | {"answer": "yes"}) + "\n")
    (tmp_path / "questions.jsonl").write_text("".join(lines))
    result = adapt(wanted(base, tmp_path, recipes=("relevance",)), tmp_path / "out", progress=False)
    recall = result["gain"]["recall"]
    assert {"before", "after"} <= recall["shuffled question@6"].keys()
    assert "after" not in recall["ink density@6"]
    lines = dict(in_words(result["gain"]))
    assert set(lines) == {"arr-coc@6", "arr-coc sparse@6"}
    texts = [text for name, text in in_words(result["gain"]) if "evidence" in text]
    after = recall["shuffled question@6"]["after"]
    assert all(f"another question {after:.0%}" in text and "ink " in text for text in texts)


def test_a_folder_of_parquet_files_is_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "validation-00000-of-00001.parquet").touch()
    assert data_spec(str(tmp_path)) == f"parquet:{tmp_path}"


def test_minutes_end_it(base: Path, boxed: Path, tmp_path: Path) -> None:
    settings = wanted(base, boxed, steps=100_000, minutes=1e-3, recipes=("relevance",))
    result = adapt(settings, tmp_path / "out", progress=False)
    assert 1 <= result["parts"]["relevance"]["steps"] < 100
    assert result["signal"] is None


def test_steps_of_a_finished_part_are_those_that_it_did(
    base: Path, boxed: Path, tmp_path: Path, finished: tuple[Path, Any]
) -> None:
    settings = wanted(base, boxed, steps=100_000, minutes=1e-3, recipes=("relevance",))
    done = adapt(settings, tmp_path / "out", progress=False)["parts"]["relevance"]
    again = adapt(settings, tmp_path / "out", progress=False)["parts"]
    assert again == {"relevance": {"steps": done["steps"], "of": 100_000}}
    assert json.loads((tmp_path / "out" / adaptation.RESULT).read_text())["parts"] == again


def test_it_goes_on_on_another_device(
    base: Path, boxed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, train = wanted(base, boxed, recipes=("relevance",)), adaptation.train

    def cut(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adaptation, "train", cut)
    with pytest.raises(KeyboardInterrupt):
        adapt(settings, tmp_path / "out", progress=False)
    monkeypatch.setattr(adaptation, "train", train)
    result = adapt(dataclasses.replace(settings, device="cpu"), tmp_path / "out", progress=False)
    assert result["parts"]["relevance"]["steps"] == 2


class TestGain:
    @staticmethod
    def results(recall: float, name: str = "arr-coc@6") -> Any:
        records = [
            {"id": str(i), "image": "a", "recall": {name: recall}, "score": {name: 1.0}} for i in range(4)
        ]
        return {"metric": "score"}, records

    def test_it_is_paired(self) -> None:
        row = gain(self.results(0.25), self.results(0.5))["recall"]["arr-coc@6"]
        assert row == {"before": 0.25, "after": 0.5, "difference": 0.25, "interval": [0.25, 0.25]}

    def test_what_an_image_gains_all_of_its_questions_gain(self) -> None:
        before, after = (self.results(recall) for recall in (0.5, 0.5))
        for (_, records), changes in ((before, (0, 0)), (after, (0.5, -0.5))):
            for number, record in enumerate(records):
                record["image"] = "ab"[number // 2]
                record["recall"] = {"arr-coc@6": 0.5 + changes[number // 2]}
        figures = gain(before, after)
        assert figures["intervals"] == "over images"
        row = figures["recall"]["arr-coc@6"]
        assert row == {"before": 0.5, "after": 0.5, "difference": 0, "interval": [-0.5, 0.5]}

    def test_what_nothing_was_taught_has_no_after(self) -> None:
        null = "random@6"
        assert gain(self.results(0.25, null), self.results(0.5, null))["recall"][null] == {"before": 0.25}


class TestRefusals:
    def test_a_folder_that_is_not_there(self) -> None:
        with pytest.raises(ValueError, match="data 'nowhere' is not there: give a folder of images"):
            data_spec("nowhere")

    def test_a_folder_without_questions(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"questions\.jsonl"):
            data_spec(str(tmp_path))

    def test_one_image(self, tmp_path: Path) -> None:
        picture(1).save(tmp_path / "a.png")
        (tmp_path / "questions.jsonl").write_text('{"image": "a.png", "question": "?", "answer": "b"}\n')
        with pytest.raises(ValueError, match="about 1 images: give two at least"):
            survey(data_spec(str(tmp_path)), None)

    def test_another_adaptation(self, finished: tuple[Path, Any], base: Path, boxed: Path) -> None:
        with pytest.raises(ValueError, match="holds an adaptation with steps 2, not 3"):
            adapt(wanted(base, boxed, steps=3), finished[0], progress=False)

    def test_somebody_elses_folder(self, base: Path, boxed: Path, tmp_path: Path) -> None:
        (tmp_path / "letter.txt").write_text("mine")
        with pytest.raises(ValueError, match="holds other files"):
            adapt(wanted(base, boxed), tmp_path, progress=False)

    def test_a_full_disk_before_it_begins(
        self, base: Path, boxed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 9, 1))
        with pytest.raises(ValueError, match="has 0 MiB free, and learning needs some 64"):
            adapt(wanted(base, boxed), tmp_path / "out", progress=False)

    def test_a_disk_that_becomes_full(
        self, base: Path, boxed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(adaptation, "evaluate", lambda *_: None)
        monkeypatch.setattr(adaptation, "train", full)
        with pytest.raises(ValueError, match=r"can't be written .No space left on device.: make room"):
            adapt(wanted(base, boxed), tmp_path / "out", progress=False)

    def test_a_recipe_that_is_no_part(self) -> None:
        with pytest.raises(ValueError, match="recipe 'hard' is no part of an adaptation"):
            parts_of("relevance,hard")
