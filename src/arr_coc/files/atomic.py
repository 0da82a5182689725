"""Writing of files and folders so that a reader sees the old or the new, never a part; without torch.

write_atomic(content, path)                      a file from its bytes
with atomic_file(path) as part: ...              a file that something else writes, under the name `part`
with temporary_folder(".saving-", folder) as new:
    move_files(new, folder, names)               files that belong together, written into `new` before
with folder_lock(folder): ...                    one process at a time, or with shared=True readers together
"""

# A writer that is killed leaves its part behind. The next writer to the same place removes it: each part is
# locked (flock) while its writer lives. Where files can't be locked (Windows, some network disks) leftovers
# stay, and files of two writers that save into one folder at the same moment may mix.

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None
"""The system's file locks; Windows has no such module."""
LOCK_FILE = "owner"  # the file in a temporary folder that its process keeps locked
LOCK_SECONDS = 60.0  # how long to wait for a folder that another process reads or writes
_PARTS = 4  # usual names of a file's parts: so many writers at once leave nothing behind when they are killed


def one_line(error: BaseException, most: int = 300) -> str:
    """The message of an error in one printable line of at most `most` characters."""
    text = " ".join(str(error).split())[:most] or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in text)


# ---- a file -------------------------------------------------------------------------------------------


def write_atomic(content: bytes, path: Path) -> None:
    """Write a file from all of its bytes; arguments and errors are those of `atomic_file`."""
    with atomic_file(path) as part:
        part.write_bytes(content)


@contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """A new file beside `path`, to be written in the block and then renamed to it.

    It gets the mode that the umask allows. A link is replaced, not followed.

    Args:
        path: in a folder that exists; an older file is replaced.

    Raises:
        OSError: the folder is missing or can't be written to, or the disk is full; `path` is as it was.
    """
    part, owner = _new_part(path)
    try:
        yield part
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):  # its folder is gone, or the disk: the first error tells
            part.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(part)):
            _name_file(error, path)
        raise
    finally:
        if owner is not None:
            os.close(owner)  # after the renaming, up to which another writer would take it for a leftover


def _name_file(error: OSError, path: Path) -> None:
    """Name the file that was to be written in an error of the system: one of a full disk names none."""
    if error.errno is not None:
        error.filename, error.filename2 = str(path), None


def check_writable(path: Path) -> None:
    """Try whether `atomic_file` can write a file, and leave everything as it is.

    Raises:
        OSError: its folder is missing or can't be written to, or `path` is a folder.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    part, owner = _new_part(path)
    part.unlink()
    if owner is not None:
        os.close(owner)


def _new_part(path: Path) -> tuple[Path, int | None]:
    """A new file beside another, and its open, locked descriptor; None where there are no locks."""
    # Names are of one length, since `path` may have the longest name that a file can have. They are few, so
    # that leftovers are met by name, and a folder of 100,000 files isn't listed for each that is written.
    digest = hashlib.blake2b(path.name.encode(errors="surrogateescape"), digest_size=12).hexdigest()
    usual = [path.with_name(f".{digest}-{number}.part") for number in range(_PARTS)]
    for part in usual if fcntl else ():
        _remove_left_part(part)
    while True:
        for part in (*usual, path.with_name(f".{uuid4().hex}.part")):
            try:
                owner = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            except OSError as error:
                _name_file(error, path)
                raise
            if fcntl is None:
                os.close(owner)  # Windows renames no file that is open
                return part, None
            try:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another writer is removing it as a leftover
                os.close(owner)
                continue
            except OSError:  # this disk has no locks
                return part, owner
            if _is_at(owner, part):
                return part, owner
            os.close(owner)


def _remove_left_part(part: Path) -> None:
    """Remove a part if its writer has ended."""
    try:
        left = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # nearly always: there is none
        return
    try:
        fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(left, part):
            part.unlink()
    except OSError:  # its writer lives, or it is another user's
        return
    finally:
        os.close(left)


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the one that a name leads to."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


# ---- a folder -----------------------------------------------------------------------------------------


@contextmanager
def temporary_folder(prefix: str, place: Path | None = None) -> Generator[Path]:
    """A new folder, deleted at the end of the block; those that killed processes left are deleted now.

    Args:
        prefix: how its name begins, and those of the others.
        place: where; None: the folder for temporary files.

    """
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if fcntl is None:
            yield folder
            return
        with Path(folder, f"{LOCK_FILE}.new").open("wb") as owner:
            try:
                fcntl.flock(owner, fcntl.LOCK_EX)
            except OSError:  # this disk has no locks: none of its folders will be swept
                yield folder
                return
            Path(owner.name).rename(folder / LOCK_FILE)  # it is never there unlocked
            for other in folder.parent.glob(f"{prefix}*"):
                _delete_left_behind(other)
            yield folder


def _delete_left_behind(folder: Path) -> None:
    """Delete a temporary folder if its process has ended and was this user's."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        name, new = LOCK_FILE, folder / f"{LOCK_FILE}.new"
        if new.exists():  # it is being made, for which a moment is enough
            if time.time() - new.stat().st_mtime < LOCK_SECONDS:
                return
            name = new.name
        with (folder / name).open("rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its process runs, or another one deletes it
        return


def move_files(new: Path, folder: Path, names: Sequence[str]) -> None:
    """Move written files into a folder in place of those of the same names, all or none.

    Args:
        new: the folder that has them: a `temporary_folder` in `folder`.
        folder: where they go; files of `names` that `new` lacks are removed there.
        names: of files, in the order of moving; they may be in folders below.

    Raises:
        OSError: one can't be moved, or another process keeps the folder locked; all are as they were.
    """
    old = new / "replaced"
    taken: list[str] = []
    placed: list[str] = []
    with folder_lock(folder):
        try:
            for name in names:
                target = folder / name
                if target.is_dir() and not target.is_symlink():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
                if os.path.lexists(target):
                    (old / name).parent.mkdir(parents=True, exist_ok=True)
                    target.replace(old / name)
                    taken.append(name)
                if (new / name).exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    (new / name).replace(target)
                    placed.append(name)
        except BaseException:
            for name in placed:
                (folder / name).unlink()
            for name in taken:
                (old / name).replace(folder / name)
            raise


@contextmanager
def folder_lock(folder: Path, shared: bool = False) -> Generator[None]:
    """Keep other processes that lock a folder out of it; nothing is written there.

    Args:
        folder: one that can't be opened is not locked.
        shared: let in others that share it, as readers do.

    Raises:
        TimeoutError: another process keeps it locked for `LOCK_SECONDS`.
    """
    try:
        lock = os.open(folder, os.O_RDONLY) if fcntl else None
    except OSError:  # it is missing or can't be listed, which what is done there tells better
        lock = None
    if lock is None:
        yield
        return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TimeoutError(
                        f"another process has been reading or saving there for {LOCK_SECONDS:g} s"
                    ) from None
                time.sleep(0.01)
            except OSError:  # this disk has no locks
                break
        try:
            yield
        finally:
            with suppress(OSError):  # there was no lock
                fcntl.flock(lock, fcntl.LOCK_UN)  # a process forked meanwhile would keep it
    finally:
        os.close(lock)
