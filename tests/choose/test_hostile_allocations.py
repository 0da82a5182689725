"""Saved allocations from anywhere: whatever a file holds, it is a record, or refused in one line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from arr_coc.choose.allocation import Allocation
from hostile import refusal, spoilt, spoilt_bytes
from records import record

FORMAT = "arr-coc allocation 1"


@pytest.fixture
def parts(tmp_path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the other fields of a sound file."""
    made = record(4, 5, 6)
    made.save(tmp_path / "sound")
    plain = {"grid": [1, 4, 5], "tensions": made.tensions, "budget": 6, "void": False}
    return load_file(tmp_path / "sound"), plain


def load(path: Path, tensors: dict[str, torch.Tensor], plain: object) -> str | None:
    """What is said of a file of these parts."""
    save_file(tensors, path, {"format": FORMAT, "plain": json.dumps(plain)})
    return refusal(lambda: Allocation.load(path).to_dict())


def test_spoilt_fields(tmp_path: Path, parts: tuple[dict[str, torch.Tensor], dict[str, Any]]) -> None:
    tensors, plain = parts
    assert load(tmp_path / "a", tensors, plain) is None
    rng = random.Random(5)
    messages = [load(tmp_path / "a", tensors, spoilt(plain, rng)) for _ in range(120)]
    refused = [message for message in messages if message is not None]
    assert 60 < len(refused) < 120
    assert all("is not a saved allocation (" in message for message in refused)


def test_damaged_files(tmp_path: Path) -> None:
    record(4, 5, 6).save(tmp_path / "a")
    whole, rng, refused = (tmp_path / "a").read_bytes(), random.Random(6), 0
    for number in range(120):
        data = bytearray(whole)
        if number % 2:
            data[rng.randrange(len(data))] = rng.randrange(256)
        else:
            data = bytearray(spoilt_bytes(b"{" + bytes(rng.choices(b"abc[]\\n", k=50)), rng))
        (tmp_path / "b").write_bytes(data)
        refused += refusal(lambda: Allocation.load(tmp_path / "b").to_dict()) is not None
    assert refused > 60


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("weights", torch.full((3,), float("nan")), "weights is not within 0 and 1"),
        ("balanced", torch.full((1, 4, 5), 2.0), "balanced is not within 0 and 1"),
        ("balanced", torch.rand(5, 4, 1), "balanced has shape (5, 4, 1), the grid is (1, 4, 5)"),
        ("keep", torch.arange(6).float(), "its tensors are not keep, order"),
        ("keep", torch.arange(6)[None], "keep must hold 1..20 indices"),
        ("keep", torch.full((6,), 2**62), "keep must be rising"),
        ("order", torch.zeros(0, dtype=torch.int64), "order must hold the indices of keep"),
        ("reasons", torch.full((6,), 3), "an unknown reason"),
        ("more", torch.zeros(1), "its tensors are not keep, order"),
        ("keep", None, "its tensors are not keep, order"),
    ],
)
def test_hostile_tensors(
    tmp_path: Path,
    parts: tuple[dict[str, torch.Tensor], dict[str, Any]],
    name: str,
    change: torch.Tensor | None,
    message: str,
) -> None:
    tensors, plain = parts
    made = {key: value for key, value in (tensors | {name: change}).items() if value is not None}
    assert message in str(load(tmp_path / "a", made, plain))


@pytest.mark.parametrize("plain", ["", "{", "[" * 100_000, "null", "[]", "{}", '{"grid": NaN}'])
def test_hostile_text(tmp_path: Path, plain: str) -> None:
    save_file({"keep": torch.zeros(1)}, tmp_path / "a", {"format": FORMAT, "plain": plain})
    assert "is not a saved allocation" in str(refusal(lambda: Allocation.load(tmp_path / "a")))
