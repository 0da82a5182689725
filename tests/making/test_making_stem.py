"""The bundled stem's own training: batches, and resuming."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from making import stem
from muon import needs_muon


@pytest.mark.slow
@needs_muon
def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "stem.safetensors"
    checkpoints = []
    for steps in (2, 3):
        stem.train(out, [256], steps, 64, 2e-3, 0.0, 1, 0.5, 5.0, None)
        checkpoints.append(load_file(out))
        with safe_open(out, framework="pt") as file:
            assert file.metadata() == {"step": str(steps)}
    assert [float(weights["state.step.stem.head.1.weight"]) for weights in checkpoints] == [2, 3]
    learned = {name for name, value in checkpoints[0].items() if not torch.equal(value, checkpoints[1][name])}
    assert {name for name in checkpoints[0] if name.startswith("weight.")} - learned <= {
        "weight.stem.gestalt.weight",  # every fourth batch has a gestalt
        "weight.stem.gestalt.bias",
    }


def test_a_batch_depends_on_its_number_alone() -> None:
    first, later = (stem.StemPages([128, 192], 32, at, 9, 0.5)[5 - at] for at in (0, 5))
    assert first["texts"] == later["texts"]
    assert first["grid"] == later["grid"]
    for name in ("pictures", "words", "glyphs"):
        assert torch.equal(first[name], later[name])
