"""The stages that make the bundled model: their command lines, and three of them in a row on tiny pages."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from transformers import AutoModelForImageTextToText, AutoProcessor

from arr_coc.train.recipe import load_recipe, parse_override
from making import bundled, language, together, vision
from making.optimizers import load_checkpoint
from making.words import build_embeddings
from muon import needs_muon

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@needs_muon
def test_stages_run_end_to_end(tmp_path, tokenizer):
    v = tmp_path / "v.safetensors"
    vision.train(v, [96], 2, 18, 1e-3, 1, until=1)
    vision.train(v, [96], 2, 18, 1e-3, 1, sheets=1.0)
    vision.train(v, [96], 2, 18, 1e-3, 1, until=1)  # past it already: nothing happens
    assert (
        load_checkpoint(
            v, vision.Eyes(bundled.build_model(tokenizer, build_embeddings(tokenizer, bundled.DIM)))
        )
        == 2
    )
    language.train(tmp_path / "l.safetensors", 2, 1, 1e-3, 1)
    together.train(
        tmp_path / "t.safetensors",
        v,
        tmp_path / "l.safetensors",
        [128],
        16,
        1,
        1e-4,
        0.2,
        0.05,
        1,
        None,
        tmp_path / "model",
        sheets=0.5,
    )
    last = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[-1])
    assert 0 <= last["validation"]["all"] <= 1
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "model")
    assert type(loaded).__name__ == "Qwen3VLForConditionalGeneration"
    assert AutoProcessor.from_pretrained(tmp_path / "model").tokenizer.chat_template is not None


RECORDER = """#!/usr/bin/env bash
printf -v line '%q ' "$@"
printf '%s\\n' "$line" >> "$RECORD"  # at once: some calls run side by side
"""


def recorded(script: str, folder: Path) -> list[list[str]]:
    """The arguments of every call of Python that a script makes, in an empty folder where nothing is run."""
    commands = folder / "commands"
    commands.mkdir()
    (commands / "python").write_text(RECORDER)
    for name in ("gzip", "cp"):  # of results that nobody made here
        (commands / name).write_text("#!/usr/bin/env bash\n")
    for path in commands.iterdir():
        path.chmod(0o755)
    (folder / "empty").mkdir()
    environment = {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHON": str(commands / "python"),
        "RECORD": str(folder / "record"),
        "OUT": str(folder / "out"),
    }
    subprocess.run(["bash", str(ROOT / script)], cwd=folder / "empty", env=environment, check=True)
    return [shlex.split(line) for line in (folder / "record").read_text().splitlines()]


@pytest.mark.parametrize(
    ("script", "stages"),
    [
        ("runs/bundled.sh", {"vision", "language", "together"}),
        ("runs/reads.sh", {"reading", "answers", "rendered"}),
        ("runs/study.sh", {"stem"}),
    ],
)
def test_every_command_line_of_the_scripts_is_legal(tmp_path: Path, script: str, stages: set[str]) -> None:
    called = set()
    for arguments in recorded(script, tmp_path):
        if "torch.distributed.run" in arguments:
            arguments = arguments[arguments.index("-m", 1) :]
        if arguments[0] != "-m":
            assert arguments[0] == "-" or (ROOT / arguments[0]).is_file(), arguments
        elif arguments[1].startswith("making."):
            module = importlib.import_module(arguments[1])
            module.command_line().parse_args(arguments[2:])
            called.add(arguments[1].removeprefix("making."))
        elif arguments[1:3] == ["arr_coc", "train"]:
            name, *changes = arguments[3 : arguments.index("--out")]
            load_recipe(name, dict(parse_override(change) for change in changes))
        else:
            assert arguments[1] == "arr_coc"
    assert called == stages
