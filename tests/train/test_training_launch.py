"""What a launcher wants of training: one model divided over processes, or what can't be done, refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arr_coc.train.processes import DEEPSPEED, FSDP, IGNORED, divides, hide_fsdp_env
from arr_coc.train.recipe import make_recipe
from arr_coc.train.trainer import train


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher but the one that a test plays."""
    for name in (FSDP, DEEPSPEED, "WORLD_SIZE", *IGNORED):
        monkeypatch.delenv(name, raising=False)


def test_without_a_launcher_nothing_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not divides()
    monkeypatch.setenv(FSDP, "false")
    assert not divides()


@pytest.mark.parametrize("wish", ["true", "True", "1"])
def test_fsdp_is_for_several_processes(monkeypatch: pytest.MonkeyPatch, wish: str) -> None:
    monkeypatch.setenv(FSDP, wish)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert divides()
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(ValueError, match=r"there is one: launch two or more \(--num_processes 2\)"):
        divides()


@pytest.mark.parametrize("name", IGNORED)
def test_settings_that_would_change_nothing_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable, value in ((FSDP, "true"), ("WORLD_SIZE", "2"), (name, "true")):
        monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{name} is true, but .*unset {name}"):
        divides()


def test_deepspeed_is_refused_and_nothing_is_left_behind(
    base: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEEPSPEED, "true")
    recipe = make_recipe(stage="relevance", model=str(base), data=(f"jsonl:{rows}",), steps=1)
    with pytest.raises(ValueError, match=f"DeepSpeed would divide .* --use_fsdp .unset {DEEPSPEED}"):
        train(recipe, tmp_path / "out", progress=False, device="cpu")
    assert not (tmp_path / "out").exists()


def test_accelerate_does_not_divide_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FSDP, "true")
    with hide_fsdp_env():
        assert FSDP not in os.environ
    assert os.environ[FSDP] == "true"
    monkeypatch.delenv(FSDP)
    with hide_fsdp_env():
        pass
    assert FSDP not in os.environ
