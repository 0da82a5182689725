"""The walk of a question through the package: files, moves between them, and what lies in each room.

    python bench/walk.py
    python bench/walk.py --json > bench/results/walk.json
    python bench/walk.py --order "model session > prepare > layer > texture knowing"

**Files and moves.** One `ask` of the bundled model (the built-in sample and its question, the model's own
budget), after one unmeasured `ask` in the same mode, so that imports and whatever is set up once don't count;
on one thread, by `sys.setprofile`. A *file* is entered when a function defined in it is called, or a
generator of it (a context manager, say) is resumed. *Moves* are counted there and back: a call whose function
lies in a file A of the package while the nearest frame of the package below it on the stack lies in another
file B, and the return from it. What is called through a library, such as a module's `forward` through torch,
counts for the file that called the library. Resuming a generator is a call to the interpreter, and its
pausing a return. Calls from outside of the package are no moves. Functions that Python makes itself, the
`__init__` of a dataclass among them, lie in no file. Beside it, *there* counts the calls alone: the same
moves without the ways back.

**Rooms.** A room is a folder or a file at the top of src/arr_coc. Code lines are lines with at least one
token that is neither comment nor docstring. Imports are counted once per pair of files, wherever they stand
in a file; those for type checking alone are left out. One that runs up goes from a room to another that the
order places higher. Within one level nothing runs up.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import resource
import statistics
import subprocess
import sys
import time
import tokenize
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "arr_coc"
MODES = ("full", "prune", "sparse", "saccade", "compress", "weight")
TODAY = (  # the rooms as they are meant, from the top down, in the names of the files that are there before
    "__main__ cli",
    "app space study terminal viewing benching drawing",
    "training bench",
    "evaluate card",
    "rivals",
    "observe trace picture viewer",
    "world data metrics",
    "model session images",
    "prepare realize decoding prefix relaxation",
    "learned checkpoint hub",
    "seam gaze gestalt lora",
    "layer stem config attending balancing knowing texture allocation",
)
LATER = (  # the rooms of the redesign, from the top down
    "__main__ cli",
    "app serve",
    "training",
    "evaluate",
    "rivals",
    "inspect viewer",
    "world data",
    "model session images",
    "modes",
    "store",
    "seam",
    "core",
)
CORE = "layer stem config attending balancing knowing texture allocation".split()
"""What is to be arr_coc.choose, before it is: imported without transformers?"""


# ---- one ask --------------------------------------------------------------------------------------------


class Walk:
    """Counts the moves between files of the package while it is the profiler."""

    def __init__(self, package: Path = PACKAGE) -> None:
        self._root = f"{package}/"
        self._stack: list[tuple[FrameType, str]] = []
        self.files: Counter[str] = Counter()
        self.moves: Counter[tuple[str, str]] = Counter()
        self.returns = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Called by the interpreter at each call and return of a Python function."""
        if event not in ("call", "return"):
            return
        where = frame.f_code.co_filename
        if not where.startswith(self._root):
            return
        file = where.removeprefix(self._root)
        if event == "return":  # also of a generator that pauses
            if self._stack and self._stack[-1][0] is frame:
                self._stack.pop()
                self.returns += bool(self._stack) and self._stack[-1][1] != file
            return
        if self._stack and self._stack[-1][1] != file:
            self.moves[self._stack[-1][1], file] += 1
        self.files[file] += 1
        self._stack.append((frame, file))


def walk(model: Any, mode: str) -> dict[str, Any]:
    """The walk of one `ask`."""
    sample = json.loads((PACKAGE / "bundled" / "sample.json").read_text(encoding="utf-8"))
    image, question = PACKAGE / "bundled" / "sample.png", sample["question"]
    model.ask(image, question, mode=mode)
    counts = Walk()
    sys.setprofile(counts)
    try:
        model.ask(image, question, mode=mode)
    finally:
        sys.setprofile(None)
    moves = counts.moves.total()
    return {
        "files": len(counts.files),
        "moves": moves + counts.returns,
        "there": moves,
        "calls": counts.files.total(),
        "busiest": [[a, b, n] for (a, b), n in counts.moves.most_common(5)],
    }


# ---- rooms and imports ----------------------------------------------------------------------------------


def room_of(path: Path) -> str:
    """The folder or file at the top of the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def code_lines(source: str) -> int:
    """Lines with a token that is neither comment nor docstring."""
    empty = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    }  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in empty:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                if isinstance(first.value.value, str):
                    lines.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def imports_of(path: Path) -> set[Path]:
    """Files of the package that a file imports, but for type checking."""
    targets: set[Path] = set()
    package = PACKAGE.name

    def add(name: str) -> None:
        where = PACKAGE.joinpath(*name.split(".")[1:])
        for file in (where.with_suffix(".py"), where / "__init__.py"):
            if file.is_file() and file != path and where != PACKAGE:
                targets.add(file)

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == package:
                    add(alias.name)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parts = (package, *path.relative_to(PACKAGE).parent.parts)
                origin = ".".join((*parts[: len(parts) - node.level + 1], *filter(None, [origin])))
            if origin.split(".")[0] == package:
                add(origin)
                for alias in node.names:  # a module of a package
                    add(f"{origin}.{alias.name}")
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return targets


def survey(order: list[list[str]]) -> dict[str, Any]:
    """Code lines of each room, imports between rooms, and those that run up."""
    files = sorted(path for path in PACKAGE.rglob("*.py") if "bundled" not in path.parts)
    level = {room: len(order) - i for i, rooms in enumerate(order) for room in rooms}
    rooms: dict[str, dict[str, int]] = {}
    for path in files:
        room = rooms.setdefault(room_of(path), {"lines": 0, "files": 0, "longest file": 0})
        source = path.read_text(encoding="utf-8")
        room["lines"] += code_lines(source)
        room["files"] += 1
        room["longest file"] = max(room["longest file"], source.count("\n"))
    pairs = [(path, target) for path in files for target in sorted(imports_of(path))]
    between = [(room_of(a), room_of(b), a, b) for a, b in pairs if room_of(a) != room_of(b)]
    up = [
        f"{a.relative_to(PACKAGE)} -> {b.relative_to(PACKAGE)}"
        for one, other, a, b in between
        if one != "__init__" and level.get(one, 0) < level.get(other, 0)
    ]
    return {
        "lines": sum(room["lines"] for room in rooms.values()),
        "files": len(files),
        "rooms": dict(sorted(rooms.items())),
        "arrows between rooms": len({(one, other) for one, other, _, _ in between}),
        "imports between rooms": len(between),
        "imports that run up": len(up),
        "up": up,
        "rooms without a level": sorted(set(rooms) - set(level) - {"__init__"}),
    }


# ---- what starts how fast, and with what ----------------------------------------------------------------


def imports_transformers(modules: list[str]) -> dict[str, bool]:
    """Of each module, imported alone in a process of its own, whether transformers comes with it."""
    report = {}
    for module in modules:
        code = f"import sys, {module}; print('transformers' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        report[module] = done.stdout.strip() == "True"
    return report


def seconds_of_help(times: int = 5) -> dict[str, float]:
    """Median seconds of `arr-coc --help`, each in a process of its own, after one that is not timed.

    "wall" is what a user waits; "cpu" moves less with what else the machine does.
    """
    wall, cpu = [], []
    for _ in range(times + 1):
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "arr_coc", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall.append(time.perf_counter() - start)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {
        name: round(statistics.median(seconds[1:]), 3) for name, seconds in (("wall", wall), ("cpu", cpu))
    }


# ---- the table ------------------------------------------------------------------------------------------


def measure(order: list[list[str]], modes: list[str]) -> dict[str, Any]:
    """Everything."""
    from arr_coc import ARRCOCModel

    model = ARRCOCModel.from_pretrained()
    core = [f"arr_coc.{name}" for name in (["core"] if (PACKAGE / "core").is_dir() else CORE)]
    return {
        "ask": {mode: walk(model, mode) for mode in modes},
        **survey(order),
        "imports transformers": imports_transformers(core),
        "help seconds": seconds_of_help(),
    }


def show(figures: dict[str, Any]) -> None:
    """Print the figures as tables."""
    print(f"{'mode':<12}{'files':>7}{'moves':>7}{'there':>7}{'calls':>7}   busiest")
    for mode, row in figures["ask"].items():
        a, b, count = row["busiest"][0]
        print(
            f"{mode:<12}{row['files']:>7}{row['moves']:>7}{row['there']:>7}{row['calls']:>7}   "
            f"{a} -> {b}: {count}"
        )
    print(f"\n{'room':<14}{'code lines':>11}{'files':>7}{'longest file':>14}")
    for room, row in figures["rooms"].items():
        print(f"{room:<14}{row['lines']:>11}{row['files']:>7}{row['longest file']:>14}")
    print(f"{'all':<14}{figures['lines']:>11}{figures['files']:>7}")
    for name in ("arrows between rooms", "imports between rooms", "imports that run up"):
        print(f"\n{name}: {figures[name]}", end="")
    print("".join(f"\n    {arrow}" for arrow in figures["up"]))
    if figures["rooms without a level"]:
        print(f"rooms without a level, below all others: {', '.join(figures['rooms without a level'])}")
    for module, comes in figures["imports transformers"].items():
        print(f"{module} imports {'' if comes else 'without '}transformers")
    seconds = figures["help seconds"]
    print(f"arr-coc --help: {seconds['wall']} s, of which {seconds['cpu']} s of computing")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--order", help="levels of rooms from the top down: 'a b > c > d'")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--json", action="store_true", help="one object instead of tables")
    options = parser.parse_args()
    levels = LATER if (PACKAGE / "core").is_dir() else TODAY
    order = [level.split() for level in (options.order.split(">") if options.order else levels)]
    figures = measure(order, options.modes.split(","))
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        show(figures)


if __name__ == "__main__":
    main()
