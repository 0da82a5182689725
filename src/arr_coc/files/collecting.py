"""A pause of Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Generator[None, None, None]:
    """Pause the garbage collector: imports leave no garbage, and looking for it takes time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():  # all that is there counts as old, which is rarely looked through
                gc.freeze()
                gc.unfreeze()
            gc.enable()
