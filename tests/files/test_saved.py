"""Files of learned weights: written whole or not at all, and readable by whom the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from arr_coc.files import atomic as whole
from arr_coc.files.atomic import make_folder, write_atomic
from arr_coc.files.saved import write_tensors


@pytest.fixture(params=[0o022, 0o077, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_the_mode_is_that_of_any_new_file(umask: int, tmp_path: Path) -> None:
    write_tensors({"a": torch.zeros(2)}, tmp_path / "a.safetensors")
    assert stat.S_IMODE((tmp_path / "a.safetensors").stat().st_mode) == 0o666 & ~umask


def test_tensors_come_back_whatever_their_layout(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "learning": torch.nn.Parameter(torch.ones(3)),
        "small": torch.ones(2, dtype=torch.bfloat16),
        "empty": torch.empty(0, 4),
    }
    write_tensors(tensors, path, {"format": "pt"})
    again = load_file(path)
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())
    assert again["small"].dtype == torch.bfloat16
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_file_that_cannot_be_finished_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors({"a": torch.zeros(2)}, path)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(whole.os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_tensors({"a": torch.ones(2)}, path)
    assert torch.equal(load_file(path)["a"], torch.zeros(2))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_tensors_that_share_memory_write_nothing(tmp_path: Path) -> None:
    whole = torch.zeros(4)
    with pytest.raises(RuntimeError, match="share memory"):
        write_tensors({"a": whole, "b": whole}, tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_made_but_not_of_a_file(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a" / "b").is_dir()
    write_atomic(b"text", tmp_path / "file")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=rf"{place.name}' can't be made a folder .*; name another one"):
            make_folder(place)
    assert (tmp_path / "file").read_bytes() == b"text"
