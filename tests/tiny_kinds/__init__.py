"""Tiny random models of more families, a file each: `make()` gives a config (or a model) and a processor.

The file has the name of the model type. What it needs of transformers it imports within `make`, since not
every release has it; the builders of `tiny_families` and its laws find the file by its name.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from packaging.version import Version

NEEDS = {"fast_vlm": "timm", "perception_lm": "timm"}
"""Packages of which a model type's vision tower comes, where that isn't transformers."""
ABSENT = [name for name, package in NEEDS.items() if find_spec(package) is None]


def _scatters_by_short_numbers() -> bool:
    """Whether torch scatters by int32 numbers, without which the stock models of some types don't run."""
    try:
        torch.zeros(1).scatter_(0, torch.zeros(1, dtype=torch.int32), 1.0)
    except RuntimeError:
        return False
    return True


if not _scatters_by_short_numbers():  # torch 2.6
    ABSENT += ["qwen4_exp", "glm5_next"]
if Version(transformers.__version__) < Version("5.20"):  # whose own model takes pictures of one size alone
    ABSENT.append("minicpmv4_6")
TILES, QUERIES = r"cuts a picture of 2048x1024 px into [37];", r"tokens only \d+% .* don't stand for places"
APART = "measure how far tokens are apart in columns"
REFUSED = {
    "llama4": TILES,
    "granite4_vision": TILES,
    "perception_lm": TILES,
    "aria": QUERIES,
    "idefics2": QUERIES,
    "minimax_m3_vl": "take positions for numbers of columns",
    "inkling_mm_model": APART,
    "inkling2": APART,
    "inkling2_loop": APART,
}
"""Model types that have no adapter and that the generic one doesn't fit, with what is said of them."""
NAMES = tuple(sorted({path.stem for path in Path(__file__).parent.glob("[a-z]*.py")} - set(ABSENT)))


def make(name: str) -> tuple[Any, Any]:
    """A config (or a model, its weights just drawn) of a model type, and its processor."""
    return import_module(f"tiny_kinds.{name}").make()
