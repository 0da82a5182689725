"""What the tests of commands share: a folder to work in, a tiny model, a photo."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from arr_coc.store import checkpoint
from tiny import picture


@pytest.fixture(scope="module")
def lent(base: Path) -> Iterator[str]:
    """A tiny model, as it is named on the command line; its weights are read for the first line alone."""
    read, name = checkpoint.load_base, str(base)
    once = cache(partial(read, name))

    def lend(source: str | Path, dtype: Any = None, revision: str | None = None) -> Any:
        return once(dtype) if str(source) == name else read(source, dtype, revision)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "load_base", lend)
        yield name


@pytest.fixture(scope="module")
def folder(lent: str) -> str:
    """The usual name of it."""
    return lent


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
