"""What the tests of commands share: a folder to work in, a tiny model, a photo."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiny import picture


@pytest.fixture(scope="module")
def folder(base: Path) -> str:
    """A tiny model, as it is named on the command line."""
    return str(base)


@pytest.fixture
def image(tmp_path: Path) -> str:
    """A photo of 6 x 8 cells beside the folder that the command runs in."""
    picture(1, (64, 48)).save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands write into the current folder, which is empty."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
