"""The folder of a run: nothing of somebody else's is lost, and a failed start leaves nothing behind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from arr_coc.train import trainer
from arr_coc.train.folder import check, claim, last_checkpoint, opened
from arr_coc.train.recipe import Recipe, make_recipe


def recipe(**changes: Any) -> Recipe:
    return make_recipe(**{"stage": "relevance", "steps": 5, "workers": 0, "sizes": (128,)} | changes)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, and the content of every file."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def fail(*_: object, **__: object) -> None:
    raise RuntimeError


def begun(folder: Path, settings: Recipe, step: int = 2) -> Path:
    """A folder with a run that has a checkpoint."""
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}")
    claim(folder, settings)
    return folder


class TestSomebodyElses:
    @pytest.mark.parametrize(
        ("files", "message"),
        [
            (
                ("arr_coc.safetensors", "arr_coc_config.json"),
                "holds an allocator, which this run would overwrite",
            ),
            (("query_blind.safetensors",), "holds a scorer"),
            (("arr_coc.safetensors", "recipe.json"), "holds an allocator"),  # its run left no checkpoint
            (("notes.txt",), r"holds other files \(notes.txt\) and no run of training"),
            (("recipe.json", "curve.png"), "holds a finished run"),
        ],
    )
    def test_a_folder_with_something_in_it_is_refused_before_anything_is_loaded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...], message: str
    ) -> None:
        def load(*_: object) -> None:
            raise AssertionError("loaded")

        monkeypatch.setattr(trainer, "open_rows", load)
        monkeypatch.setattr(trainer, "build_learner", load)
        for name in files:
            text = json.dumps(recipe().to_dict()) if name == "recipe.json" else "mine"
            (tmp_path / name).write_text(text)
        before = contents(tmp_path)
        with pytest.raises(ValueError, match=message) as refused:
            trainer.train(recipe(), tmp_path, progress=False)
        assert re.search(r"choose (another|a new or an empty) folder", str(refused.value))
        assert str(tmp_path) in str(refused.value)
        assert "\n" not in str(refused.value)
        assert contents(tmp_path) == before

    def test_another_recipes_checkpoint_is_kept(self, tmp_path: Path) -> None:
        begun(tmp_path, recipe())
        with pytest.raises(ValueError, match=r"holds a run with lr = 0.003, not 0.5; choose another folder"):
            check(tmp_path, recipe(lr=0.5))
        (tmp_path / "recipe.json").write_text("[")
        with pytest.raises(ValueError, match=r"recipe.json' can't be read .* choose another folder"):
            check(tmp_path, recipe())

    def test_a_file_is_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("mine")
        for out in (tmp_path / "taken", tmp_path / "taken" / "inside"):
            with pytest.raises(ValueError, match=r"can't be used for the result \(.*\); choose another"):
                trainer.train(recipe(model="./nowhere"), out, progress=False)
        assert contents(tmp_path) == {"taken": b"mine"}

    def test_a_run_that_never_came_to_a_checkpoint_gives_way(self, tmp_path: Path) -> None:
        claim(tmp_path, recipe())
        (tmp_path / "curve.jsonl").write_text("{}\n")
        (tmp_path / "checkpoint-2").mkdir()  # cut off
        (tmp_path / ".DS_Store").write_text("the system's")
        check(tmp_path, recipe(lr=0.5))


BAD_STARTS = [
    {"model": "./no-model"},
    {"init": "./no-allocator"},
    {"data": ("jsonl:./no-data",)},
]


class TestFailedStart:
    @pytest.mark.parametrize("bad", BAD_STARTS, ids=lambda bad: next(iter(bad)))
    def test_it_leaves_nothing_and_does_not_block_the_right_line(
        self, base: Path, tmp_path: Path, bad: dict[str, Any]
    ) -> None:
        out = tmp_path / "made" / "by" / "nobody"
        with pytest.raises(ValueError, match="no-"):
            trainer.train(recipe(**{"model": str(base)} | bad), out, progress=False)
        assert contents(tmp_path) == {}
        empty = tmp_path / "empty"
        empty.mkdir()
        with pytest.raises(ValueError, match="no-"):
            trainer.train(recipe(**{"model": str(base)} | bad), empty, progress=False)
        assert contents(tmp_path) == {"empty": None}
        check(empty, recipe())

    def test_also_where_the_trainer_itself_fails(
        self, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(trainer.RecipeTrainer, "train", fail)
        with pytest.raises(RuntimeError):
            trainer.train(recipe(model=str(base)), tmp_path / "out", progress=False)
        assert contents(tmp_path) == {}

    def test_a_runs_files_stay(self, tmp_path: Path) -> None:
        settings = recipe(model="./no-model")
        before = contents(begun(tmp_path, settings))
        with pytest.raises(ValueError, match="no-model"):
            trainer.train(settings, tmp_path, progress=False)
        assert contents(tmp_path) == before
        assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"

    def test_of_several_processes_the_first_makes_the_folder_and_removes_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = tmp_path / "out"
        with pytest.raises(RuntimeError), opened(out):
            fail()
        assert contents(tmp_path) == {}
        out.mkdir()
        monkeypatch.setenv("RANK", "1")
        with pytest.raises(RuntimeError), opened(out):
            fail()
        with opened(tmp_path / "other"):
            assert contents(tmp_path) == {"out": None}
