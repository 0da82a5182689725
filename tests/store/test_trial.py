"""Tokenizers and processors that multiply are refused within bounds, and not in this process."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arr_coc.files.worker import Worker
from arr_coc.store import checkpoint
from arr_coc.store import checkpoint as trial

Settings = dict[str, Any]


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "model"))


def change(path: Path, spoil: Callable[[Settings], Any]) -> None:
    settings = json.loads(path.read_text()) if path.exists() else {}
    spoil(settings)
    path.write_text(json.dumps(settings))


def refused(folder: Path, match: str) -> None:
    """Refused in one line, within a time, and the next folder is tried as ever."""
    begun = time.monotonic()
    with pytest.raises(ValueError, match=match) as error:
        checkpoint.load_processor("a model", folder)
    assert str(error.value).isprintable()
    assert time.monotonic() - begun < trial.SECONDS + 20


def replacing(pattern: str, content: str) -> Settings:
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def template(count: int) -> Settings:
    """A template that writes a special token so often around every text."""
    piece = {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [piece, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [1] * count, "tokens": ["x"] * count}},
    }


RARE = [replacing("☃", "☃☃") for _ in range(40)]
"""Nothing that a probe would have: one letter becomes a million million."""
TOKENIZERS: dict[str, tuple[str, Any]] = {
    "doubling": ("normalizer", {"type": "Sequence", "normalizers": RARE}),
    "doubling what is decoded": ("decoder", {"type": "Sequence", "decoders": RARE}),
    "a long text": ("normalizer", replacing("a", "b" * 10**6)),
    "a long prefix": ("normalizer", {"type": "Prepend", "prepend": "a" * 10**6}),
    "a template": ("post_processor", template(100_000)),
    "a longer template": ("post_processor", template(2_000)),
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_tokenizers_that_multiply(folder: Path, case: str) -> None:
    part, value = TOKENIZERS[case]
    change(folder / "tokenizer.json", lambda settings: settings.update({part: value}))
    refused(folder, r"the tokenizer\.json of 'a model' can't be loaded \(.*save it again")


def test_a_token_that_is_long(folder: Path) -> None:
    change(folder / "tokenizer.json", lambda each: each["model"]["vocab"].update({"x" * 10**6: 400}))
    refused(folder, "token 'xxx.* has 1000000 letters")


@pytest.mark.slow
def test_a_pattern_that_tries_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial._WORKER, "seconds", 3)
    pattern = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+(?=b)|(a|aa)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    change(folder / "tokenizer.json", lambda settings: settings.update(pre_tokenizer=pattern))
    refused(folder, r"the tokenizer\.json of 'a model' can't be loaded \(")


PICTURES: dict[str, tuple[str, Settings]] = {
    "frames": ("image_processor", {"temporal_patch_size": 100_000}),
    "the least": ("image_processor", {"size": {"shortest_edge": 2**27, "longest_edge": 2**28}}),
    "mean": ("image_processor", {"image_mean": [0.5] * 7}),
    "no patch": ("image_processor", {"patch_size": 0}),
    "a patch of text": ("image_processor", {"patch_size": "16"}),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("frames", "the least") else name
        for name in PICTURES
    ],
)
def test_processors_that_multiply_or_fail(folder: Path, case: str) -> None:
    part, values = PICTURES[case]
    change(folder / "processor_config.json", lambda settings: settings[part].update(values))
    refused(folder, r"the (image )?processor of 'a model' can't be (used|loaded) \(.*\); (correct|save)")


def test_what_held_is_not_tried_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.try_processor("a model", folder)
    steps: list[Any] = []
    monkeypatch.setattr(Worker, "ask", lambda self, request: steps.append(request["step"]))
    trial.try_processor("a copy", Path(shutil.copytree(folder, tmp_path / "copy")))
    assert steps == []
    with (folder / "tokenizer.json").open("a") as file:
        file.write("\n")
    trial.try_processor("a model", folder)
    assert steps == list(trial.STEPS)


def test_the_bundled_model_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts, ask = set(), Worker.ask

    def watched(self: Worker, request: object) -> object:
        scripts.add(self.script.name)
        return ask(self, request)

    monkeypatch.setattr(Worker, "start", lambda self: pytest.fail("a child was started"))
    monkeypatch.setattr(Worker, "ask", watched)
    checkpoint.load_base("bundled")
    assert scripts <= {"template_worker.py"}  # which renders every chat template
