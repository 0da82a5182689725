"""The modes: ways to spend visual tokens, by name.

    MODES["sparse"].help, find_mode("sparse").prepare(chooser, call)

A mode of one's own is one file with a `Mode` and one line, `register_mode(MINE)`.
Importing this costs nothing: what a mode needs is imported by its functions when they run.
"""

from __future__ import annotations

from arr_coc.modes.compress import COMPRESS
from arr_coc.modes.full import FULL
from arr_coc.modes.mode import Mode
from arr_coc.modes.prune import PRUNE
from arr_coc.modes.saccade import SACCADE
from arr_coc.modes.sparse import SPARSE
from arr_coc.modes.weight import WEIGHT

MODES: dict[str, Mode] = {}
"""All modes by name, in the order of help and tables."""


def register_mode(mode: Mode) -> None:
    """Add a mode; from then on it is named wherever modes are.

    Raises:
        ValueError: the name is empty, padded or taken by another mode.
    """
    if not mode.name or mode.name != mode.name.strip():
        raise ValueError(f"mode name {mode.name!r} is empty or padded: use a word")
    if MODES.get(mode.name, mode) != mode:
        raise ValueError(f"mode {mode.name!r} is registered already: give yours another name")
    MODES[mode.name] = mode


register_mode(FULL)
register_mode(PRUNE)
register_mode(SPARSE)
register_mode(SACCADE)
register_mode(COMPRESS)
register_mode(WEIGHT)


def find_mode(name: str) -> Mode:
    """The mode of a name.

    Raises:
        ValueError: there is none of that name.
    """
    if not isinstance(name, str) or name not in MODES:
        raise ValueError(
            f"mode {name!r} is unknown; use one of {', '.join(MODES)}, or import the module that registers "
            "your own (arr-coc --import MODULE ...)"
        )
    return MODES[name]


__all__ = [
    "COMPRESS", "FULL", "MODES", "PRUNE", "SACCADE", "SPARSE", "WEIGHT",
    "Mode", "find_mode", "register_mode",
]  # fmt: skip
