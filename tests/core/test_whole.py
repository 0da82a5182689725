"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from arr_coc.core.whole import one_line, write_whole


def test_a_name_may_be_as_long_as_a_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".json")
    for content in (b"one", b"another"):
        write_whole(content, path)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(b"content", tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        write_whole(b"content", tmp_path / "missing" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        write_whole(b"content", tmp_path / "a.json")
    assert error.value.filename == str(tmp_path / "a.json")


def test_an_error_is_one_printable_line() -> None:
    assert one_line(ValueError("a\n  b\x1b[31m")) == "a b?[31m"
    assert one_line(KeyError()) == "KeyError"
    assert len(one_line(ValueError("a" * 999), 20)) == 20
