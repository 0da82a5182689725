"""The house: imports point down only, the ground floor knows no transformers, names are nouns.

Run: pytest tests/test_house.py
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "arr_coc"

FLOORS = (
    ("core",),
    ("seam",),
    ("modes",),
    ("store",),
    ("model", "session"),  # the two doors a user knows
    ("data",),
    ("inspect",),
    ("viewer",),
    ("world",),
    ("rivals",),
    ("evaluate",),
    ("training",),
    ("app",),
    ("cli",),
    ("integrations",),  # harnesses of others, thin
)
"""The rooms from the ground up; an import points to the same room or to one that stands before it."""
CORE = ("texture", "knowing", "balancing", "attending", "realizing")
"""The plan's words, each a module or package of `core`."""
RIDDLES = {"asked", "found", "given", "heard", "known", "said", "seen", "shown", "told"}
"""Participles that say nothing of what a binding holds."""


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py")


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def floor(name: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import of the package, also inside functions and for types alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "arr_coc":
            if node.module == "arr_coc":
                yield from ((node.lineno, f"arr_coc.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if a.name.startswith("arr_coc."))


def test_every_file_is_in_a_room() -> None:
    rooms = {room(path) for path in modules()} - {"__init__"}
    assert rooms == {name for floors in FLOORS for name in floors}


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
class TestFiles:
    def test_imports_point_down(self, path: Path) -> None:
        if room(path) == "__init__":
            return  # the front door names what lies behind it
        up = [
            f"line {line}: {name}"
            for line, name in imported(path)
            if name.split(".")[1] not in ("__version__",) and floor(name.split(".")[1]) > floor(room(path))
        ]
        assert not up

    def test_names_are_nouns(self, path: Path) -> None:
        riddles = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in RIDDLES:
                riddles.add((node.lineno, node.id))
            if isinstance(node, ast.arg) and node.arg in RIDDLES:
                riddles.add((node.lineno, node.arg))
        assert not riddles

    def test_it_says_what_it_is(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), "a module docstring says what it holds"


def test_the_plans_words_are_in_core() -> None:
    for name in CORE:
        assert (PACKAGE / "core" / name).is_dir() or (PACKAGE / "core" / f"{name}.py").is_file()


def test_core_imports_without_transformers() -> None:
    names = [
        "arr_coc." + path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
        for path in sorted((PACKAGE / "core").rglob("*.py"))
    ]
    code = (
        f"import importlib, sys\nfor name in {names!r}:\n"
        "    importlib.import_module(name.removesuffix('.__init__'))\n"
        "heavy = {'transformers', 'peft', 'gradio', 'huggingface_hub', 'accelerate'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
