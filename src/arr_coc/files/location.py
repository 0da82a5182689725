"""Where an allocator's base model is: the names under which a folder is found again after a move.

    written("./my-vl", folder) -> {"base_model": "/home/me/my-vl", "base_beside": "../my-vl"}
    located(settings, folder) -> the first of these that is there

A name on the Hub and "bundled" stay as they are. A folder is written as an absolute path, and also relative
to the allocator's own folder, so that both may be moved together. Files of earlier versions hold the path as
it was typed, relative to the working directory of that time: it is tried from there and from the allocator.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from arr_coc.files.saved import CONFIG_NAME

BUNDLED = "bundled"
"""The name of the base model inside the package, which is on no Hub."""
BASE, BESIDE = "base_model", "base_beside"
"""The settings of an allocator that name its base model, the second relative to the allocator's folder."""


def is_local(name: str | Path) -> bool:
    """Whether a name is a path on this disk: one that exists, or one that starts as a path does."""
    try:
        return str(name).startswith((".", "/", "~")) or Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long for a file's name, with a zero byte, nobody's home
        return False


def written(name: str | None, folder: Path) -> dict[str, str | None]:
    """The settings from which a base model is found again.

    Args:
        name: a folder, a name on the Hub, "bundled", or None.
        folder: of the allocator.
    """
    if not name or name == BUNDLED or not is_local(name):
        return {BASE: name}
    place = Path(name).expanduser().resolve()
    try:
        beside = Path(os.path.relpath(place, folder.resolve())).as_posix()
    except ValueError:  # on another drive
        return {BASE: str(place)}
    return {BASE: str(place), BESIDE: beside}


def located(settings: dict[str, Any], folder: Path) -> str:
    """The base model that an allocator names.

    Args:
        settings: from `arr_coc_config.json`; `base_model` is not empty.
        folder: of the allocator.

    Returns:
        A folder that exists, a name on the Hub, or "bundled".

    Raises:
        ValueError: it names folders, and none of them is there.
    """
    name = settings[BASE]
    if name == BUNDLED:
        return name
    far = name.startswith(("\\\\", "//"))  # on another machine, which even looking there would call
    places = [] if far else [Path(name), folder / (settings.get(BESIDE) or name), folder / name]
    for place in places:
        try:
            if place.expanduser().is_dir():
                return str(place if place == places[0] else place.resolve())
        except (OSError, RuntimeError, ValueError):  # no name that a folder could have
            continue
    if not far and not is_local(name):
        return name
    raise ValueError(
        f"the base model {name[:200]!r}, named in {str(folder / CONFIG_NAME)!r}, is not there; name its "
        "folder as the model, and this one as its `allocator`"
    )
