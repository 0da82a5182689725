"""Modes: the ways to spend visual tokens, the records of a call, and the route from inputs to the model."""

from arr_coc.modes.mode import (
    COMPRESS,
    FULL,
    MODES,
    PRUNE,
    SACCADE,
    SPARSE,
    WEIGHT,
    Mode,
    find_mode,
    register_mode,
)

__all__ = [
    "COMPRESS", "FULL", "MODES", "PRUNE", "SACCADE", "SPARSE", "WEIGHT",
    "Mode", "find_mode", "register_mode",
]  # fmt: skip
