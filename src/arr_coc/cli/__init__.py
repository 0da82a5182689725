"""The command line `arr-coc`; a command of your own is made of `options`, `inputs` and `terminal`."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arr_coc.cli.entry import commands, main, register_command

__all__ = ["commands", "main", "register_command"]


def __getattr__(name: str) -> object:
    """Return the names of `entry`, loaded when first used: it imports plugins, which import this package."""
    if name in __all__:
        return getattr(import_module("arr_coc.cli.entry"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
