"""Two processes train one layer: each takes its own rows, and what they learn is what one learns from both.

Run: pytest tests/test_training_processes.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from arr_coc import ARRCOCModel
from arr_coc.training.recipe import Recipe
from arr_coc.training.trainer import train
from tiny import picture

STEPS = 3


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight small pictures with a question each, of which every answer is another."""
    folder = tmp_path_factory.mktemp("rows")
    lines = []
    for i in range(8):
        picture(i, (48, 40)).save(folder / f"{i}.png")
        row = {"image": f"{i}.png", "question": f"What is it, {i}?", "answer": chr(97 + i)}
        lines.append(row | {"boxes": [[8 * (i % 4), 0, 8 * (i % 4) + 16, 16]]})
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_two_processes_learn_what_one_learns_from_twice_the_rows(
    base: Path, rows: Path, tmp_path: Path
) -> None:
    settings = {
        "init": "none", "model": str(base), "budgets": 6, "steps": STEPS, "warmup": 1, "relevance": 1, "workers": 0,
    }  # fmt: skip
    words = [f"{name}={value}" for name, value in settings.items()]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    line = [*launch, "-m", "arr_coc", "train", "answers", *words, f"data=jsonl:{rows}"]
    done = subprocess.run(
        [*line, "--out", str(tmp_path / "two"), "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (spoken,) = done.stdout.splitlines()  # one of the two
    facts = json.loads(spoken)
    assert facts["steps"] == STEPS
    samples = facts["train_samples_per_second"] * facts["train_runtime"]
    assert samples == pytest.approx(2 * STEPS, abs=0.1)

    recipe = Recipe(
        stage="answers", data=(f"jsonl:{rows}",), batch=2, **(settings | {"budgets": (6,)})
    )
    train(recipe, tmp_path / "one", progress=False)
    train(Recipe(**(vars(recipe) | {"batch": 1})), tmp_path / "half", progress=False)
    two, one, half = (
        load_file(tmp_path / name / "arr_coc.safetensors") for name in ("two", "one", "half")
    )
    for name in one:
        print(name, float((two[name]-one[name]).abs().max()), float((half[name]-one[name]).abs().max()))
    assert 0
    assert ARRCOCModel.from_pretrained(tmp_path / "two").layer.trained
