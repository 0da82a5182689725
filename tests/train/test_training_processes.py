"""Two processes train one layer, on a CPU, in seconds, and learn what one process does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from arr_coc import ARRCOCModel
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.train.recipe import load_recipe, parse_override
from arr_coc.train.trainer import train
from launching import launch
from tiny import WIDTH

STEPS = 2


@pytest.mark.slow
def test_two_processes_share_a_step(base: Path, rows: Path, tmp_path: Path) -> None:
    """Each step reads a row in each process; one of them writes and speaks.

    They learn what one process learns from two rows a step, though budgets and noise are drawn: what is drawn
    for an image depends on its number in the run.
    """
    words = [f"model={base}", f"data=jsonl:{rows}", "budgets=6,3", f"steps={STEPS}", "relevance=1"]
    words = ["answers", "init=none", "workers=0", "warmup=0", "estimator=gumbel", *words]
    command = ["-m", "arr_coc", "train", *words, "--out", str(tmp_path / "out"), "--json"]
    printed = launch(command)
    (line,) = printed.splitlines()
    facts = json.loads(line)
    assert facts["steps"] == STEPS
    samples = facts["train_samples_per_second"] * facts["train_runtime"]
    assert samples == pytest.approx(2 * STEPS, abs=0.1)
    assert ARRCOCModel.from_pretrained(tmp_path / "out").layer.trained

    settings = load_recipe(words[0], dict(map(parse_override, [*words[1:], "batch=2"])))
    train(settings, tmp_path / "one", progress=False, device="cpu")
    two, one = (load_file(tmp_path / name / "arr_coc.safetensors") for name in ("out", "one"))
    start = ARRCOCLayer(ARRCOCConfig(dim=WIDTH)).state_dict()
    moved = max(float((one[name] - start[name]).abs().max()) for name in one)
    assert moved > 1e-4
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-2 * moved
