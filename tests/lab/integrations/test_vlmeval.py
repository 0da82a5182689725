"""The launcher for VLMEvalKit, with a stand-in that has the interface the kit documents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arr_coc_lab.integrations.chat import Decoding, Responder, load
from arr_coc_lab.integrations.vlmeval import set_up
from launching import PACKAGES
from tiny import picture

BASE = """
class BaseModel:
    INTERLEAVE = False
    allowed_types = ["text", "image"]

    def generate(self, message, dataset=None):
        assert all(set(item) == {"type", "value"} for item in message)
        for item in message:
            assert item["type"] in self.allowed_types
        return self.generate_inner(message, dataset)
"""
RUN = """
import argparse, json
from vlmeval.config import supported_VLM

parser = argparse.ArgumentParser()
parser.add_argument("--data", nargs="+")
parser.add_argument("--model", nargs="+")
arguments = parser.parse_args()
answers = {}
for name in arguments.model:
    model = supported_VLM[name]()
    for data in arguments.data:
        lines = [json.loads(line) for line in open(data)]
        answers[name] = [model.generate(line, dataset=data) for line in lines]
        read = [reply.read for reply in model.replies]
print(json.dumps({"answers": answers, "read": read, "class": type(model).__name__}))
"""


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A checkout with `run.py` and the package, and a data set of two questions."""
    for name, text in (("__init__", ""), ("config", "supported_VLM = {'taken': None}"), ("vlm/__init__", "")):
        path = tmp_path / "kit" / "vlmeval" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "kit" / "vlmeval" / "vlm" / "base.py").write_text(BASE)
    (tmp_path / "kit" / "run.py").write_text(RUN)
    picture(3, (256, 192)).save(tmp_path / "a.png")
    image = {"type": "image", "value": str(tmp_path / "a.png")}
    lines = [[image, {"type": "text", "value": text}] for text in ("What is the title?", "Where?")]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "kit"


@pytest.mark.slow
def test_the_kit_runs_with_arr_coc_among_its_models(kit: Path) -> None:
    words = ("--kit", "kit", "--name", "ours", "--mode", "sparse", "--budget", "9", "--max-new-tokens", "4")
    line = [sys.executable, "-m", "arr_coc_lab.integrations.vlmeval", *words, "--device", "cpu"]
    own = os.environ | {"PYTHONPATH": PACKAGES}
    line += ["--", "--data", "data.jsonl"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=kit.parent, env=own)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    responder = Responder(load(mode="sparse", budget=9, device="cpu"))
    expected = [
        responder.reply([{"role": "user", "content": [image, text]}], Decoding(max_new_tokens=4)).text
        for image, text in (
            ({"type": "image", "image": kit.parent / "a.png"}, {"type": "text", "text": question})
            for question in ("What is the title?", "Where?")
        )
    ]
    assert result == {"answers": {"ours": expected}, "read": [9, 9], "class": "ARRCOC"}


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No trace of a stand-in in this process."""
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "vlmeval"]:
        del sys.modules[name]


@pytest.mark.usefixtures("clean")
class TestSetUp:
    def test_the_model_is_registered_and_not_loaded(self, kit: Path) -> None:
        script = set_up(kit, "ours", ["--data", "OCRBench"], mode="prune", budget="64")
        from vlmeval.config import supported_VLM

        assert script == kit / "run.py"
        assert sys.argv == [str(script), "--model", "ours", "--data", "OCRBench"]
        assert supported_VLM["ours"].keywords == {"mode": "prune", "budget": "64"}

    @pytest.mark.parametrize(
        ("name", "arguments", "options", "message"),
        [
            ("taken", [], {}, "has a model 'taken' already"),
            ("ours", ["--model", "x"], {}, "leave --model and --config out"),
            ("ours", [], {"mode": "prine"}, "prine"),
            ("ours", [], {"budget": "none"}, "budget 'none' is not a number"),
        ],
    )
    def test_what_cannot_run_is_refused(
        self, kit: Path, name: str, arguments: list[str], options: dict[str, str], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            set_up(kit, name, arguments, **options)

    def test_no_checkout(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"has no run\.py: give a checkout"):
            set_up(tmp_path, "ours", [])

    def test_without_the_kit_it_says_what_to_install(self, kit: Path) -> None:
        (kit / "vlmeval" / "vlm" / "base.py").unlink()
        with pytest.raises(ValueError, match="VLMEvalKit can't be imported"):
            set_up(kit, "ours", [])
