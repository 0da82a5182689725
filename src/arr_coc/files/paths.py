"""Paths as a user writes them, checked; and where the base model of a saved allocator is. Imports no torch.

local_path("~/page.png") -> Path("/home/me/page.png")
base_settings("./my-vl", folder) -> {"base_model": "/home/me/my-vl", "base_beside": "../my-vl"}
locate_base(settings, folder) -> the first of these two that exists
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

BUNDLED_NAME = "bundled"  # the name of the base model inside the package, which is on no Hub
CONFIG_NAME = "arr_coc_config.json"  # the file of an allocator folder that names its base model
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


def is_local(name: str | Path) -> bool:
    """Whether a model's name is a path on this disk: one that exists, or one that starts as a path does."""
    try:
        return str(name).startswith((".", "/", "~")) or Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long for a file's name, with a zero byte, nobody's home
        return False


def base_settings(name: str | None, folder: Path) -> dict[str, str | None]:
    """The settings of an allocator from which its base model is found again, after a move too.

    A folder is written as an absolute path, and also relative to the allocator's folder, so that both may be
    moved together. A name on the Hub, "bundled" and None are written as they are.

    Args:
        name: of the base model.
        folder: of the allocator.
    """
    if not name or name == BUNDLED_NAME or not is_local(name):
        return {"base_model": name}
    place = Path(name).expanduser().resolve()
    try:
        beside = Path(os.path.relpath(place, folder.resolve())).as_posix()
    except ValueError:  # on another drive
        return {"base_model": str(place)}
    return {"base_model": str(place), "base_beside": beside}


def locate_base(settings: dict[str, Any], folder: Path) -> str:
    """The base model that an allocator names: a folder that exists, a name on the Hub, or "bundled".

    Args:
        settings: of `base_settings`, read back; `base_model` is not empty.
        folder: of the allocator.

    Raises:
        ValueError: it names folders, and none of them is there.
    """
    name = settings["base_model"]
    if name == BUNDLED_NAME:
        return name
    remote = name.startswith(("\\\\", "//"))  # another machine, which even looking there would call
    beside = settings.get("base_beside")
    places = [] if remote else [Path(name), *([folder / beside] if beside else [])]
    for place in places:
        try:
            if place.expanduser().is_dir():
                return str(place if place == places[0] else place.resolve())
        except (OSError, RuntimeError, ValueError):  # no name that a folder could have
            continue
    if not remote and not is_local(name):
        return name
    raise ValueError(
        f"the base model {name[:200]!r}, named in {str(folder / CONFIG_NAME)!r}, is not there; name its "
        "folder as the model, and this one as its `allocator`"
    )
