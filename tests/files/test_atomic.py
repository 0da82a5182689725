"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arr_coc.files import atomic as whole
from arr_coc.files.atomic import (
    LOCK_FILE,
    atomic_file,
    check_writable,
    folder_lock,
    move_files,
    one_line,
    temporary_folder,
    write_atomic,
)
from disks import contents, small_files

KILLED = """
import os, signal, sys
from pathlib import Path
from arr_coc.files.atomic import temporary_folder, atomic_file
place = Path(sys.argv[1])
with atomic_file(place / "a.json") as part, temporary_folder(".saving-", place) as new:
    part.write_bytes(b"half")
    (new / "b.json").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_name_may_be_as_long_as_a_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".json")
    for content in (b"one", b"another"):
        write_atomic(content, path)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomic(b"content", tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        write_atomic(b"content", tmp_path / "missing" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        write_atomic(b"content", tmp_path / "a.json")
    assert error.value.filename == str(tmp_path / "a.json")


def test_a_file_that_may_not_grow_leaves_the_old_one(tmp_path: Path) -> None:
    """A real refusal of the system in the middle of a write."""
    path = tmp_path / "a.json"
    write_atomic(b"old", path)

    with small_files(), pytest.raises(OSError, match=r"File too large: '.*a.json'"):
        write_atomic(bytes(10_000), path)
    assert contents(tmp_path) == {"a.json": b"old"}


def test_what_killed_writers_left_is_removed_by_the_next(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    write_atomic(b"old", tmp_path / "a.json")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 3
    assert (tmp_path / "a.json").read_bytes() == b"old"
    write_atomic(b"new", tmp_path / "another.json")  # another place
    assert len(list(tmp_path.iterdir())) == 4
    write_atomic(b"new", tmp_path / "a.json")
    with temporary_folder(".saving-", tmp_path):
        pass
    assert {file.name for file in tmp_path.iterdir()} == {"a.json", "another.json"}


def test_a_folder_whose_making_was_cut_off_is_removed_after_a_while(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    for name, age in (("old", 1e6), ("new", 0.0)):
        (tmp_path / f".saving-{name}").mkdir()
        owner = tmp_path / f".saving-{name}" / f"{LOCK_FILE}.new"
        owner.touch()
        os.utime(owner, (time.time() - age,) * 2)
    with temporary_folder(".saving-", tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [".saving-new"]


def test_what_living_writers_write_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with temporary_folder(".saving-", tmp_path) as first, temporary_folder(".saving-", tmp_path) as second:
        assert first.is_dir()
        assert second.is_dir()
    with atomic_file(path) as slow:
        slow.write_bytes(b"slow")
        for number in range(6):  # more than there are usual names
            with atomic_file(path) as part:
                part.write_bytes(b"%d" % number)
        assert path.read_bytes() == b"5"
    assert path.read_bytes() == b"slow"
    assert list(tmp_path.iterdir()) == [path]


def test_many_writers_at_once_leave_one_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    contents = [bytes([number]) * 2000 for number in range(4)]
    numbers = []
    for content in contents:
        number = os.fork()
        if number == 0:
            for _ in range(10):
                write_atomic(content, path)
            os._exit(0)
        numbers.append(number)
    assert [os.waitpid(number, 0)[1] for number in numbers] == [0] * 4
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_without_locks_files_are_whole_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "fcntl", None)
    for content in (b"one", b"another"):
        write_atomic(content, tmp_path / "a.json")
        assert (tmp_path / "a.json").read_bytes() == content
        with temporary_folder(".saving-", tmp_path) as new:
            (new / "b").write_bytes(content)
            move_files(new, tmp_path, ["b"])
    assert {file.name for file in tmp_path.iterdir()} == {"a.json", "b"}


def test_a_place_is_tried_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"old")
    for name in ("a.json", "b.json"):
        check_writable(tmp_path / name)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a.json", b"old")]
    with pytest.raises(IsADirectoryError):
        check_writable(tmp_path)
    with pytest.raises(FileNotFoundError):
        check_writable(tmp_path / "missing" / "a.json")


@pytest.mark.parametrize("failing", range(1, 6))
def test_files_are_moved_all_or_none(failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the renamings fails."""
    names = ["a", "below/b", "gone"]
    old = {"a": b"old", "gone": b"old", "mine": b"mine"}
    for name, content in old.items():
        (tmp_path / name).write_bytes(content)
    rename, calls = Path.replace, 0

    def fail_once(path: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    def files() -> dict[str, bytes]:
        return {str(f.relative_to(tmp_path)): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}

    monkeypatch.setattr(Path, "replace", fail_once)
    with temporary_folder(".saving-", tmp_path) as new:
        (new / "below").mkdir()
        for name in names[:2]:
            (new / name).write_bytes(b"new")
        if failing == 5:  # there are four
            move_files(new, tmp_path, names)
        else:
            with pytest.raises(OSError, match="Input/output"):
                move_files(new, tmp_path, names)
    assert files() == ({"a": b"new", "below/b": b"new", "mine": b"mine"} if failing == 5 else old)


def test_a_folder_in_the_way_stays(tmp_path: Path) -> None:
    (tmp_path / "b" / "mine").mkdir(parents=True)
    with temporary_folder(".saving-", tmp_path) as new:
        for name in "ab":
            (new / name).write_bytes(b"new")
        with pytest.raises(IsADirectoryError):
            move_files(new, tmp_path, ["a", "b"])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["b", "mine"]


def test_readers_share_a_folder_and_writers_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fcntl")
    monkeypatch.setattr(whole, "LOCK_SECONDS", 0.03)
    with folder_lock(tmp_path, shared=True), folder_lock(tmp_path, shared=True):
        with pytest.raises(TimeoutError, match=r"another process has been reading or saving there for 0\.03"):
            with folder_lock(tmp_path):
                pass
    with folder_lock(tmp_path):
        with pytest.raises(TimeoutError), folder_lock(tmp_path, shared=True):
            pass
        with folder_lock(tmp_path / "missing"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_one_printable_line() -> None:
    assert one_line(ValueError("a\n  b\x1b[31m")) == "a b?[31m"
    assert one_line(KeyError()) == "KeyError"
    assert len(one_line(ValueError("a" * 999), 20)) == 20
