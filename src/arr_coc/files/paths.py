"""Paths as a user writes them, made into paths of this disk or refused in one line.

local_path("~/page.png") -> Path("/home/me/page.png")
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_UNUSABLE = {errno.ENAMETOOLONG: "is too long for a file's name", errno.ELOOP: "is a link to itself"}


def local_path(text: str | Path) -> Path:
    """The path that a text means, `~` expanded; nothing has to be there.

    Raises:
        ValueError: no file can have this name: a NUL or half a character in it, a `~name` of nobody, or one
            too long for the file system.
    """
    try:
        path = Path(text).expanduser()
        os.stat(path)
    except RuntimeError as error:  # ~name, or ~ where there is no home
        raise ValueError(f"path {shorten(text)}: there is no such home folder; write it out") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"path {shorten(text)} is no text that a file can be named by") from error
    except ValueError as error:
        raise ValueError(f"path {shorten(text)} holds a NUL character: leave it out") from error
    except OSError as error:
        if error.errno in _UNUSABLE:
            raise ValueError(f"path {shorten(text)} {_UNUSABLE[error.errno]}: give another") from error
    return path


def input_file(text: str | Path) -> Path:
    """The file that a text means; one that is missing is for its reader to complain about.

    Raises:
        ValueError: as `local_path`; or a folder, or a device or pipe, which may never end.
    """
    path = local_path(text)
    if path.exists() and not path.is_file():
        kind = "is a folder" if path.is_dir() else "is no regular file"
        raise ValueError(f"path {shorten(text)} {kind}: give the path of a file")
    return path


def shorten(text: str | Path, most: int = 160) -> str:
    """A path or another text of the user's in quotes, control characters escaped, cut off if it is long."""
    quoted = repr(str(text))
    return quoted if len(quoted) <= most else f"{quoted[: most - 10]}...{quoted[0]}"
