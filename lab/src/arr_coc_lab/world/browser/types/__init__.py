"""Page types: one file each, one function from a sheet to the HTML of a page's body.

    @page_type("receipt")
    def receipt(sheet: Sheet) -> str: ...

A new type is one file here; it is registered when the types are asked for. Types with `held_out=True` are of
the test split alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

from arr_coc_lab.world.browser.sheet import Sheet

Writer = Callable[[Sheet], str]


class PageType(NamedTuple):
    """A kind of page: its name, whether it is of the test split alone, how often it comes, and its writer."""

    name: str
    held_out: bool
    weight: float
    write: Writer


_TYPES: dict[str, PageType] = {}


def page_type(name: str, *, held_out: bool = False, weight: float = 1.0) -> Callable[[Writer], Writer]:
    """Register a page type, with its relative frequency `weight`; ValueError if the name is taken."""

    def register(write: Writer) -> Writer:
        if name in _TYPES:
            raise ValueError(f"page type {name!r} exists; choose another name")
        _TYPES[name] = PageType(name, held_out, weight, write)
        return write

    return register


def page_types(split: str) -> tuple[PageType, ...]:
    """Return the types of a split, by name: the test split has all, the others those not held out."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return tuple(t for _, t in sorted(_TYPES.items()) if split == "test" or not t.held_out)
