"""The tensor core loads without transformers, and names no library that loads models, not even late."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CORE = ("allocation", "attending", "balancing", "config", "knowing", "layer", "relaxation", "stem", "texture")
HEAVY = {"transformers", "peft", "gradio", "huggingface_hub"}
SCRIPT = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded_by(*modules: str) -> set[str]:
    """Top-level packages in `sys.modules` of a new interpreter after importing these modules."""
    command = [sys.executable, "-c", SCRIPT, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def imported_in(module: str) -> set[str]:
    """Modules that the source of a module imports anywhere, functions included, as dotted names."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    names = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            names.add(str(node.module))
    return names


def test_the_core_loads_no_model_library():
    packages = loaded_by(*(f"arr_coc.{module}" for module in CORE))
    assert {"torch", "arr_coc"} <= packages
    assert packages.isdisjoint(HEAVY)


@pytest.mark.parametrize("module", CORE)
def test_the_core_names_no_other_module_of_the_package(module):
    names = imported_in(f"arr_coc.{module}")
    assert {name.partition(".")[0] for name in names}.isdisjoint(HEAVY)
    own = {name for name in names if name.partition(".")[0] == "arr_coc"}
    assert own <= {f"arr_coc.{name}" for name in CORE}
