"""Scripts of bench/ and runs/ as modules; only the repository has these folders.

need("bench/follow.py")                      skips a file of tests where the script isn't there
with imported("bench/follow.py") as follow:  the module; meanwhile its neighbours can be imported, too
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def need(script: str) -> None:
    """Skip the rest of a file of tests where its script isn't there."""
    if not (ROOT / script).is_file():
        pytest.skip(f"{Path(script).parent}/ is in the repository alone", allow_module_level=True)


@contextmanager
def imported(script: str) -> Iterator[ModuleType]:
    """The module of a script, with its folder on the path meanwhile."""
    path = ROOT / script
    sys.path.insert(0, str(path.parent))
    try:
        yield importlib.import_module(path.stem)
    finally:
        sys.path.remove(str(path.parent))
