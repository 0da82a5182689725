"""The house: imports point down, the ground floors know no transformers, a question's route stays short."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import house
from house import WHEEL, modules, place, tree

FLOORS = (
    ("files",),
    ("choose",),
    ("video",),
    ("guide",),
    ("relevance",),
    ("selector",),  # a door that needs no language model
    ("pixels",),
    ("seam",),
    ("families",),
    ("modes",),
    ("answer",),
    ("data",),
    ("store",),
    ("model", "session"),  # the two doors a user knows
    ("trace",),
    ("train",),
    ("app", "proxy", "mcp", "mcp_around"),
    ("cli",),
)
"""The rooms of the wheel from the ground up; an import points to the same room or to one before it."""
CHOOSE = ("texture", "knowing", "balancing", "attending", "layer", "allocation")
"""The plan's words, each a module or package of `choose`."""
RIDDLES = {"asked", "found", "given", "heard", "known", "said", "seen", "shown", "told"}
"""Participles that say nothing of what a binding holds."""

# A change that raises one of these says in docs/log/changes.md what the lines buy.
MAX_WHEEL_LINES = 47_460
MAX_LAB_LINES = 32_750
MAX_TEST_LINES = 75_945
MAX_SCRIPT_LINES = 17_350
MAX_CIRCLES: list[int] = []
MAX_PRIVATE_IMPORTS = 0
MAX_SHARED_CLASS_NAMES = 0
MAX_SHARED_FUNCTION_NAMES = 0


def room(path: Path) -> str:
    return path.relative_to(WHEEL).parts[0].removesuffix(".py")


def floor(name: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


def test_every_file_is_in_a_room() -> None:
    rooms = {room(path) for path in modules(WHEEL)} - {"__init__"}
    assert rooms == {name for floors in FLOORS for name in floors}


def test_imports_point_down() -> None:
    up = set()
    for path in modules(WHEEL):
        if room(path) == "__init__":
            continue  # the front door names what lies behind it
        for _, module, name in house.imports(path):
            package, target = f"{module}.{name}".split(".")[:2]
            assert package == WHEEL.name, (place(path), module)  # the lab is found by its entry points
            if target != "__version__" and floor(target) > floor(room(path)):
                up.add((place(path), target))
    assert not up


def test_the_lines_only_fall() -> None:
    assert house.lines(house.WHEEL) <= MAX_WHEEL_LINES
    assert house.lines(house.LAB) <= MAX_LAB_LINES
    assert house.lines(*house.TESTS) <= MAX_TEST_LINES
    assert house.lines(*house.SCRIPTS) <= MAX_SCRIPT_LINES


def test_circles_of_imports_only_shrink() -> None:
    sizes = [len(circle) for circle in house.circles()]
    assert len(sizes) <= len(MAX_CIRCLES), house.circles()
    assert all(size <= most for size, most in zip(sizes, MAX_CIRCLES, strict=False)), house.circles()


def test_private_names_stay_in_their_files() -> None:
    assert len(house.private_imports()) <= MAX_PRIVATE_IMPORTS, house.private_imports()


def test_a_class_name_stands_for_one_thing() -> None:
    assert len(house.shared_class_names()) <= MAX_SHARED_CLASS_NAMES, house.shared_class_names()


def test_a_function_name_stands_for_one_thing() -> None:
    assert len(house.shared_function_names()) <= MAX_SHARED_FUNCTION_NAMES, house.shared_function_names()


def test_the_route_of_a_question_only_shortens() -> None:
    for name, counts in house.routes().items():
        files, moves = house.MAX_ROUTES[name]
        assert counts.files <= files, (name, counts)
        assert counts.moves <= moves, (name, counts)


def test_the_page_has_the_table() -> None:
    _, written, _ = house.around()
    assert written == house.table(), "run `make house`"


def test_names_are_nouns() -> None:
    riddles = []
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in RIDDLES:
                riddles.append(f"{place(path)}:{node.lineno}: {node.id}")
            if isinstance(node, ast.arg) and node.arg in RIDDLES:
                riddles.append(f"{place(path)}:{node.lineno}: {node.arg}")
    assert not riddles


def test_every_file_says_what_it_is() -> None:
    silent = [path for path in modules() if tree(path).body and not ast.get_docstring(tree(path))]
    assert not silent, "a module docstring says what it holds"


def test_the_plans_words_are_modules() -> None:
    for name in CHOOSE:
        assert (WHEEL / "choose" / name).is_dir() or (WHEEL / "choose" / f"{name}.py").is_file()


def test_the_ground_floors_import_without_transformers() -> None:
    names = [
        house.module_name(path)
        for path in modules(*(WHEEL / r for r in ("choose", "video", "guide", "relevance")))
    ]
    code = (
        f"import importlib, sys\nfor name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "heavy = {'transformers', 'peft', 'gradio', 'huggingface_hub', 'accelerate'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
