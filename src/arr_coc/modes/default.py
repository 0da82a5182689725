"""The mode of calls that name none: what a model's owner set, else the one that saves most time.

    default_mode(adapter, stem) -> SPARSE or PRUNE

`DefaultMode` holds it for a model, and the block in which a thread has the stock model.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

from arr_coc.modes import FULL, PRUNE, SPARSE, Mode, find_mode

if TYPE_CHECKING:
    from arr_coc.seam import FamilyAdapter

_FULL: ContextVar[frozenset[int]] = ContextVar("full", default=frozenset())
"""The models, by id, whose `full()` block this thread or task is in."""


def default_mode(adapter: FamilyAdapter, stem: object | None) -> Mode:
    """The mode that saves most of a model's time without a say from anyone.

    "sparse", which spares the vision encoder too, where a stem was learned to choose before it and the
    family's vision tower can encode some cells alone; "prune" everywhere else.

    Args:
        adapter: of the model.
        stem: sees cells in pixels; None: nothing was learned for choosing before the encoder.
    """
    return SPARSE if stem is not None and adapter.encodes == "cells" else PRUNE


class DefaultMode:
    """What a model runs when a call doesn't name a mode; for a class with an `adapter` and a `stem`."""

    adapter: FamilyAdapter
    stem: Any
    _mode: str | None = None

    @property
    def default_mode(self) -> str:
        """The mode that this model runs as long as nobody sets one; see `modes.default.default_mode`."""
        return default_mode(self.adapter, self.stem).name

    @property
    def named_mode(self) -> str | None:
        """The mode that was named for this model, "full" inside a `full()` block; None: none was."""
        return FULL.name if id(self) in _FULL.get() else self._mode

    @property
    def mode(self) -> str:
        """The mode of calls that don't name one; "full" inside a `full()` block of this thread or task.

        Setting it to None restores `default_mode`.
        """
        return self.named_mode or self.default_mode

    @mode.setter
    def mode(self, name: str | None) -> None:
        self._mode = None if name is None else find_mode(name).name

    @contextmanager
    def full(self) -> Generator[Self, None, None]:
        """Stock behaviour inside the block: calls that don't name a mode use all tokens.

        Of the thread, or asynchronous task, that entered the block alone.
        """
        token = _FULL.set(_FULL.get() | {id(self)})
        try:
            yield self
        finally:
            _FULL.reset(token)
