"""Write files and folders atomically: a reader sees the old or the new, never a part. Imports no torch.

write_atomic(content, path)                      a file from its bytes
with atomic_file(path) as part: ...              a file that other code writes, under the name `part`
with temporary_folder(".saving-", folder) as new: ...; move_files(new, folder, names)     several files
with folder_lock(folder): ...                    one process, or with shared=True several readers
"""

# A killed writer leaves its part, which the next writer to the same place removes: each part is locked
# (flock) while its writer lives. Without locks (Windows, some network disks) leftovers stay, and files of two
# writers that save into one folder at once may mix.

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

fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None  # file locks; None on Windows
LOCK_FILE = "owner"  # in a temporary folder, kept locked by its process
LOCK_SECONDS = 60.0  # longest wait for a folder that another process reads or writes
_PARTS = 4  # names of a file's parts: up to so many killed writers at once leave nothing


def one_line(error: BaseException, most: int = 300) -> str:
    """Return the message of an error in one printable line of at most `most` characters."""
    text = " ".join(str(error).split())[:most] or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def make_folder(folder: Path) -> Path:
    """Make a folder and its parents if missing; raise ValueError if that fails or it is a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # FileExistsError or NotADirectoryError for a file
        reason = error.strerror or type(error).__name__
        raise ValueError(f"{str(folder)!r} can't be made a folder ({reason}); name another one") from error
    return folder


# ---- a file -------------------------------------------------------------------------------------------


def write_atomic(content: bytes, path: Path) -> None:
    """Write a file from all of its bytes, atomically; errors as in `atomic_file`."""
    with atomic_file(path) as part:
        part.write_bytes(content)


@contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """Lend a new file beside `path`, renamed to it after the block; a link is replaced, not followed.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; an existing file is unchanged.
    """
    part, owner = _new_part(path)
    try:
        yield part
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):  # the folder or disk is gone: the first error counts
            part.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(part)):
            _name_file(error, path)
        raise
    finally:
        if owner is not None:
            os.close(owner)  # after the renaming: until then another writer could remove it as a leftover


def _name_file(error: OSError, path: Path) -> None:
    """Add the path to a system error that names none, such as that of a full disk."""
    if error.errno is not None:
        error.filename, error.filename2 = str(path), None


def check_writable(path: Path) -> None:
    """Raise the OSError that `atomic_file(path)` would, or one if `path` is a folder; change no file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    part, owner = _new_part(path)
    part.unlink()
    if owner is not None:
        os.close(owner)


def _new_part(path: Path) -> tuple[Path, int | None]:
    """Make a file beside another; return it and its open, locked descriptor (None without locks)."""
    # Names have one length, since `path` may have the longest legal name. They are few, so that leftovers are
    # found by name, without listing a large folder for each file written.
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
                os.close(owner)  # Windows can't rename an open file
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
    """Remove a part-written file if its writer has ended."""
    try:
        left = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # the usual case: no leftover
        return
    try:
        fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(left, part):
            part.unlink()
    except OSError:  # its writer lives, or is another user
        return
    finally:
        os.close(left)


def _is_at(file: int, path: Path) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


# ---- a folder -----------------------------------------------------------------------------------------


@contextmanager
def temporary_folder(prefix: str, place: Path | None = None) -> Generator[Path]:
    """Lend a new folder, deleted at the end of the block; delete those that killed processes left, first.

    Its name begins with `prefix`; `place` is its parent (None: the system's folder for temporary files).
    """
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if fcntl is None:
            yield folder
            return
        with Path(folder, f"{LOCK_FILE}.new").open("wb") as owner:
            try:
                fcntl.flock(owner, fcntl.LOCK_EX)
            except OSError:  # no locks on this disk: leftovers stay
                yield folder
                return
            Path(owner.name).rename(folder / LOCK_FILE)  # so `LOCK_FILE` is always locked
            for other in folder.parent.glob(f"{prefix}*"):
                _delete_left_behind(other)
            yield folder


def _delete_left_behind(folder: Path) -> None:
    """Delete a temporary folder if its process has ended and was this user's."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        name, new = LOCK_FILE, folder / f"{LOCK_FILE}.new"
        if new.exists():  # being made, which takes a moment
            if time.time() - new.stat().st_mtime < LOCK_SECONDS:
                return
            name = new.name
        with (folder / name).open("rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its process runs, or another one deletes it
        return


def move_files(new: Path, folder: Path, names: Sequence[str]) -> None:
    """Move written files into a folder in place of existing ones, all or none.

    Args:
        new: a `temporary_folder` inside of `folder` with the new files.
        folder: the target; files of `names` that `new` lacks are removed there.
        names: relative paths, in the order of moving.

    Raises:
        OSError: a file can't be moved, or the folder stays locked; all files are unchanged.
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
    """Lock a folder against other processes that lock it too; `shared` admits other readers.

    Raises:
        TimeoutError: another process holds the lock for `LOCK_SECONDS`.
    """
    try:
        lock = os.open(folder, os.O_RDONLY) if fcntl else None
    except OSError:  # missing or unreadable: the caller's own access gives the better error
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
