"""Check paths as users write them, and find the base model of an allocator. Imports no torch."""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

BUNDLED_NAME = "bundled"  # name of the base model in the package; not on the Hub
CONFIG_NAME = "arr_coc_config.json"  # in an allocator folder; names its base model
_UNUSABLE = {errno.ENAMETOOLONG: "is too long for a file's name", errno.ELOOP: "is a link to itself"}


def local_path(text: str | Path) -> Path:
    """Return the path that a text stands for, `~` expanded; it need not exist.

    Raises:
        ValueError: an impossible name: NUL or a lone surrogate, an unknown `~name`, or too long.
    """
    try:
        path = Path(text).expanduser()
        os.stat(path)
    except RuntimeError as error:  # ~name, or ~ without a home
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
    """Return the path of a file to read; if it is missing, its reader reports that.

    Raises:
        ValueError: as `local_path`; a folder; a device or pipe, which may never end.
    """
    path = local_path(text)
    if path.exists() and not path.is_file():
        kind = "is a folder" if path.is_dir() else "is no regular file"
        raise ValueError(f"path {shorten(text)} {kind}: give the path of a file")
    return path


def plain_name(name: str) -> str:
    """Return a file's name with composed characters and plain blanks, as people and agents write it.

    macOS has accents decomposed in old names, and a narrow blank (U+202F) in those of its screenshots.
    """
    composed = unicodedata.normalize("NFC", name)
    return "".join(" " if unicodedata.category(each) == "Zs" else each for each in composed)


def find_alike(path: Path, may_list: Callable[[Path], bool] = lambda folder: True) -> Path:
    """Return the existing path that equals a missing one but for `plain_name`; the given path without one.

    Only folders that `may_list` allows are listed.

    Raises:
        ValueError: several such paths exist.
    """
    place = next((each for each in (path, *path.parents) if os.path.lexists(each)), path)
    for name in path.parts[len(place.parts) :]:
        try:
            entries = list(place.iterdir()) if may_list(place) else []
        except OSError:  # no folder, or one that can't be read
            entries = []
        alike = sorted(entry.name for entry in entries if plain_name(entry.name) == plain_name(name))
        if len(alike) > 1:
            named = " and ".join(map(ascii, alike))
            raise ValueError(
                f"path {shorten(path)} may be {named}: give the very name, or rename one of them"
            )
        if not alike:
            return path
        place /= alike[0]
    return place


def shorten(text: str | Path, most: int = 160) -> str:
    """Return a user's text in quotes, control characters escaped, at most `most` characters."""
    quoted = repr(str(text))
    return quoted if len(quoted) <= most else f"{quoted[: most - 10]}...{quoted[0]}"


def is_local(name: str | Path) -> bool:
    """Return whether a model's name is a path on this disk: existing, or beginning with ".", "/" or "~"."""
    try:
        return str(name).startswith((".", "/", "~")) or Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long, a zero byte, or an unknown home
        return False


def base_settings(name: str | None, folder: Path) -> dict[str, str | None]:
    """Return the settings that locate an allocator's base model, even after both have been moved together.

    A folder is saved as an absolute path and relative to the allocator's folder; a Hub name, "bundled" or
    None is saved unchanged.
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
    """Return the base model of an allocator in `folder`: an existing folder, a Hub name, or "bundled".

    Raises:
        ValueError: the settings name folders, none of which exists.
    """
    name = settings["base_model"]
    if name == BUNDLED_NAME:
        return name
    remote = name.startswith(("\\\\", "//"))  # a network path: even a check would contact that machine
    beside = settings.get("base_beside")
    places = [] if remote else [Path(name), *([folder / beside] if beside else [])]
    for place in places:
        try:
            if place.expanduser().is_dir():
                return str(place if place == places[0] else place.resolve())
        except (OSError, RuntimeError, ValueError):  # no valid folder name
            continue
    if not remote and not is_local(name):
        return name
    raise ValueError(
        f"the base model {name[:200]!r}, named in {str(folder / CONFIG_NAME)!r}, is not there; name its "
        "folder as the model, and this one as its `allocator`"
    )
