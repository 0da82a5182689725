"""Tiny random models of more families, a file each: `make()` gives a config (or a model) and a processor.

The file has the name of the model type. What it needs of transformers it imports within `make`, since not
every release has it; the builders of `tiny_families` and its laws find the file by its name.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NEEDS = {"fast_vlm": "timm", "perception_lm": "timm"}
"""Packages of which a model type's vision tower comes, where that isn't transformers."""
ABSENT = tuple(name for name, package in NEEDS.items() if find_spec(package) is None)
TILES, QUERIES = r"cuts a picture of 2048x1024 px into [37];", r"tokens only \d+% .* don't stand for places"
REFUSED = {
    "llama4": TILES,
    "perception_lm": TILES,
    "aria": QUERIES,
    "idefics2": QUERIES,
    "minimax_m3_vl": "take positions for numbers of columns",
}
"""Model types that have no adapter and that the generic one doesn't fit, with what is said of them."""
NAMES = tuple(sorted({path.stem for path in Path(__file__).parent.glob("[a-z]*.py")} - set(ABSENT)))


def make(name: str) -> tuple[Any, Any]:
    """A config (or a model, its weights just drawn) of a model type, and its processor."""
    return import_module(f"tiny_kinds.{name}").make()
