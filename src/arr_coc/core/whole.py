"""Files that are written whole or not at all, and errors in one line; without torch."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def one_line(error: BaseException, most: int = 300) -> str:
    """The message of an error in one printable line of at most `most` characters."""
    text = " ".join(str(error).split())[:most] or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def write_whole(content: bytes, path: Path) -> None:
    """Write a file under another name beside its own, then rename it: a reader sees the old one or the new.

    It gets the mode that the umask allows, as any new file does.

    Args:
        content: all of the file.
        path: its name, in a folder that exists; an older file of that name is replaced.

    Raises:
        OSError: the folder is missing or can't be written to, or the disk is full; `path` is as it was.
    """
    beside = path.with_name(f".{uuid4().hex}.part")  # `path` may have the longest name that a file can have
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError as error:
        if error.errno is not None:
            error.filename, error.filename2 = str(path), None  # a full disk names no file
        raise
    finally:
        beside.unlink(missing_ok=True)
