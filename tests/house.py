"""The measured goals of the code's layout: sizes, imports, names, and the route of a question.

    make house          # prints them, and writes the table of docs/architecture.md

`tests/test_house.py` holds each figure where it stands: it may only fall; and compares the table.
"""

from __future__ import annotations

import ast
import io
import itertools
import os
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WHEEL, LAB = ROOT / "src" / "arr_coc", ROOT / "lab" / "src" / "arr_coc_lab"
"""The packages of the two distributions."""
NAMES = {WHEEL.name, LAB.name}
TESTS, SCRIPTS = (ROOT / "tests",), (ROOT / "runs", ROOT / "making", ROOT / "bench")
PAGE = ROOT / "docs" / "architecture.md"
START, END = "<!-- house -->\n", "<!-- /house -->"
"""What stands around the table in `PAGE`."""


def modules(*packages: Path) -> list[Path]:
    """The Python files of packages, without `__main__`; of both if none is named."""
    files = (path for package in packages or (WHEEL, LAB) for path in package.rglob("*.py"))
    return sorted(path for path in files if path.name != "__main__.py")


def lines_of(path: Path) -> int:
    """The lines of a file."""
    return path.read_text(encoding="utf-8").count("\n")


def lines(*folders: Path) -> int:
    """The lines of Python in folders, in all files that `modules` gives."""
    return sum(map(lines_of, modules(*folders)))


def place(path: Path) -> str:
    """A file's path below its distribution's source folder."""
    return str(path.relative_to((LAB if path.is_relative_to(LAB) else WHEEL).parent))


def tree(path: Path) -> ast.Module:
    """A file, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    """The dotted name by which a file is imported."""
    parts = Path(place(path)).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, module and name ("" where a whole module is imported) of every import of the package in a file.

    Those inside functions and under `TYPE_CHECKING` count as others do.
    """
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in NAMES:
            yield from ((node.lineno, node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, a.name, "") for a in node.names if a.name.split(".")[0] in NAMES)


def import_graph() -> dict[str, set[str]]:
    """For each file's dotted name, the files of the package that it imports."""
    names = {module_name(path) for path in modules()}
    graph: dict[str, set[str]] = {}
    for path in modules():
        targets = set()
        for _, module, name in imports(path):
            inner = f"{module}.{name}"
            targets.add(inner if inner in names else module)
        graph[module_name(path)] = (targets & names) - {module_name(path)}
    return graph


def circles() -> list[list[str]]:
    """The circles of imports: groups of two files or more that import each other, directly or by others."""
    graph = import_graph()
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in graph[waiting.pop()] - seen:
                seen.add(target)
                waiting.append(target)
        reached[start] = seen
    groups = {frozenset({a, *(b for b in reached[a] if a in reached[b])}) for a in graph}
    return sorted((sorted(group) for group in groups if len(group) > 1), key=len, reverse=True)


def private_imports() -> list[str]:
    """Imports of a name that begins with an underscore, across files."""
    return [
        f"{place(path)}:{line}: {name}"
        for path in modules()
        for line, _, name in imports(path)
        if name.startswith("_") and not name.startswith("__")
    ]


def shared_class_names() -> list[str]:
    """Public class names that stand for two classes or more."""
    counts = Counter(
        node.name
        for path in modules()
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in counts.items() if count > 1)


def shared_function_names() -> list[str]:
    """Public names that stand for two functions of the wheel's files or more; methods and functions within
    functions don't count.
    """
    counts = Counter(
        node.name
        for path in modules(WHEEL)
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in counts.items() if count > 1)


def public_constants(package: Path) -> int:
    """How many names in capitals the files of a package bind outside of functions and classes."""
    return sum(
        isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_")
        for path in modules(package)
        for node in tree(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )


def prose(package: Path) -> tuple[float, float]:
    """The shares of docstring lines, and of lines that are a comment or end in one, in a package."""
    docs = comments = 0
    for path in modules(package):
        text = path.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments += sum(token.type == tokenize.COMMENT for token in tokens)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                if isinstance(node.value.value, str):
                    docs += (node.end_lineno or node.lineno) - node.lineno + 1
    return docs / lines(package), comments / lines(package)


MAX_ROUTES = {
    "sparse": (34, 176),
    "saccade": (36, 202),
    "full": (29, 118),
    "sparse, guide": (46, 232),
    "prune, guide": (48, 224),
    "Selector": (16, 38),
    "Selector, question": (24, 74),
    "Selector, picture": (26, 110),
    "pack_for": (30, 464),
}
"""Files and moves between files that a call of `routes` may take; they may only fall. `PAGE` shows these:
what is measured depends a little on what a process asked before. Lower them when `make house` prints less.
"""


class Route(NamedTuple):
    """What a call walks through: package files, functions, and calls from one file into another."""

    files: int
    functions: int
    moves: int


def route(call: Callable[[], object]) -> Route:
    """Profile one call; what it does on other threads isn't counted."""
    root = str(WHEEL) + os.sep
    files: set[str] = set()
    functions: set[tuple[str, str]] = set()
    moves = 0

    def on_event(frame, event, argument) -> None:
        nonlocal moves
        here = frame.f_code.co_filename
        if event != "call" or not here.startswith(root):
            return
        files.add(here)
        functions.add((here, frame.f_code.co_qualname))
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(root):
            caller = caller.f_back
        moves += caller is not None and caller.f_code.co_filename != here

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        call()
    finally:
        sys.setprofile(before)
    return Route(len(files), len(functions), moves)


@cache
def routes() -> dict[str, Route]:
    """The routes that users take, on the bundled model: of a warm question in three modes and of one that the
    guide leads, as for every model without an allocator; of a `Selector`; of packing for another question.
    """
    from arr_coc import ARRCOCModel, ARRCOCQwen, Selector
    from arr_coc.files.images import open_image
    from arr_coc.files.saved import BUNDLED
    from arr_coc.pixels import pack_for
    from arr_coc.relevance import sums

    sums.ocr_installed = lambda: False  # as for whoever has none; an OCR is a longer way
    page, question = str(BUNDLED / "sample.png"), "What is the title?"
    model, selector = ARRCOCQwen.from_pretrained(), Selector.from_pretrained()
    guided = ARRCOCModel.wrap(model.base, model.processor)
    numbers = itertools.count()
    picture = open_image(page)

    def new_picture() -> object:
        return selector(picture.crop((0, 0, picture.width - 1 - next(numbers), picture.height)), question)

    calls: dict[str, Callable[[], object]] = {
        mode: lambda mode=mode: model.ask(page, question, mode=mode) for mode in ("sparse", "saccade", "full")
    }
    calls |= {
        f"{mode}, guide": lambda mode=mode: guided.ask(page, question, mode=mode)
        for mode in ("sparse", "prune")
    }
    calls |= {
        "Selector": lambda: selector(page, question),
        "Selector, question": lambda: selector(page, f"What is the title of number {next(numbers)}?"),
        "Selector, picture": new_picture,
        "pack_for": lambda: pack_for(page, f"What is number {next(numbers)}?", 64, selector=selector),
    }
    for call in calls.values():
        call()
    return {name: route(call) for name, call in calls.items()}


COLUMNS = ("measured", "7a25969", "28 November", "now", "goal")


def table() -> str:
    """The table of `PAGE`; lines are rounded to hundreds, so that not every change rewrites it."""

    def walks(*names: str) -> str:
        return "; ".join("{}, {}".format(*MAX_ROUTES[name]) for name in names)

    def size(*folders: Path) -> str:
        return f"{round(lines(*folders), -2):,}, {len(modules(*folders))}"

    (docs, comments), (lab_docs, lab_comments) = prose(WHEEL), prose(LAB)
    names = f"{len(private_imports())}; {len(shared_class_names())}; {len(shared_function_names())}"
    rows = (
        ("lines of Python in the wheel, files", "65,365, 468", "39,812, 166", size(WHEEL), "36,000"),
        ("lines in the lab, files", "in the wheel", "30,800", size(LAB), "28,000"),
        ("lines of tests, files", "54,000", "67,300, 391", size(*TESTS), "50,000, 200"),
        ("lines of runs, making and bench, files", "", "14,700", size(*SCRIPTS), "12,000"),
        (
            "one warm question, `sparse`: files, moves between files",
            "70, 422",
            "31, 218",
            walks("sparse"),
            "28, 160",
        ),
        (
            "led by the guide, `sparse`; `prune`",
            "",
            "41, 289; 43, 281",
            walks("sparse, guide", "prune, guide"),
            "32, 200",
        ),
        ("`full`", "49", "27, 129", walks("full"), "8"),
        (
            "`Selector`: again; another question; another picture",
            "33, 168",
            "14, 48; 22, 81; 22, 127",
            walks("Selector", "Selector, question", "Selector, picture"),
            "12, 50; 18, 60; 20, 100",
        ),
        (
            "`pack_for`, another question about a known picture",
            "",
            "26, 7,590 to 17,901",
            walks("pack_for"),
            "20, 700",
        ),
        (
            "circles of imports: files in each",
            "42, 18, 2, 2, 2, 2",
            "none",
            ", ".join(str(len(circle)) for circle in circles()) or "none",
            "none",
        ),
        (
            "private names imported across files; class names and the wheel's function names used twice",
            "5; 35;",
            "0; 0; 33",
            names,
            "0; 0; 0",
        ),
        ("public constants of the wheel", "914", "693", f"{public_constants(WHEEL)}", "450"),
        (
            "docstrings: share of lines in the wheel, the lab",
            "22 %",
            "14.8 %, 11.1 %",
            f"{docs:.1%}, {lab_docs:.1%}".replace("%", " %"),
            "12 to 15 %",
        ),
        (
            "comments: share of lines in the wheel, the lab",
            "1.2 %",
            "5.1 %, 2.7 %",
            f"{comments:.1%}, {lab_comments:.1%}".replace("%", " %"),
            "5 %",
        ),
    )
    head = f"| {' | '.join(COLUMNS)} |\n|---{'|--:' * (len(COLUMNS) - 1)}|\n"
    return head + "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)


def around() -> tuple[str, str, str]:
    """The text of `PAGE` before the table, the table as it stands there, and the text behind it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    written, _, after = rest.partition(END)
    return before, written, after


def main() -> None:
    """Print the figures, and write the table."""
    for package in (WHEEL, LAB):
        print(f"{package.name}: {lines(package):,} lines of Python in {len(modules(package))} files")
        rooms: dict[str, list[Path]] = defaultdict(list)
        for path in modules(package):
            rooms[path.relative_to(package).parts[0].removesuffix(".py")].append(path)
        counts = {room: sum(map(lines_of, paths)) for room, paths in rooms.items()}
        for room, count in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"  {room:14} {count:7,} lines in {len(rooms[room]):3} files")
    print(f"tests: {lines(*TESTS):,} lines; runs, making and bench: {lines(*SCRIPTS):,} lines")
    for name, names in (
        ("imports of private names", private_imports()),
        ("class names used twice or more", shared_class_names()),
        ("function names of the wheel used twice or more", shared_function_names()),
    ):
        print(f"{name}: {', '.join(names) or 'none'}")
    for name, counts in routes().items():
        length = f"{counts.functions} functions, {counts.moves} moves between files"
        print(f"{name:18} {counts.files} files, {length}")
    before, written, after = around()
    measured = table()
    print(measured)
    if measured != written:
        PAGE.write_text(before + START + measured + END + after, encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)} is written anew")


if __name__ == "__main__":
    main()
