"""Tiny random models of more families, a file each: `make()` gives a config (or a model) and a processor.

The file has the name of the model type. What it needs of transformers it imports within `make`, since not
every release has it; the builders of `tiny_families` and its laws find the file by its name.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

NAMES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py")))


def make(name: str) -> tuple[Any, Any]:
    """A config (or a model, its weights just drawn) of a model type, and its processor."""
    return import_module(f"tiny_kinds.{name}").make()
