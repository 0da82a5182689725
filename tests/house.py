"""The measured goals of the code's layout: sizes, imports, names, and the route of a question.

    make house          # prints them

`tests/test_house.py` holds each figure where it stands: it may only fall.
"""

from __future__ import annotations

import ast
import io
import itertools
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WHEEL, LAB = ROOT / "src" / "arr_coc", ROOT / "lab" / "src" / "arr_coc_lab"
"""The packages of the two distributions."""
NAMES = {WHEEL.name, LAB.name}


def modules(*packages: Path) -> list[Path]:
    """The Python files of packages, without `__main__`; of both if none is named."""
    files = (path for package in packages or (WHEEL, LAB) for path in package.rglob("*.py"))
    return sorted(path for path in files if path.name != "__main__.py")


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


def prose(*packages: Path) -> tuple[float, float]:
    """The shares of docstring lines, and of lines that are a comment or end in one; of both
    packages if none is named.
    """
    lines = docs = comments = 0
    for path in modules(*packages):
        text = path.read_text(encoding="utf-8")
        lines += text.count("\n")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments += sum(token.type == tokenize.COMMENT for token in tokens)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                if isinstance(node.value.value, str):
                    docs += (node.end_lineno or node.lineno) - node.lineno + 1
    return docs / lines, comments / lines


def tests_collected() -> int:
    """How many tests pytest collects, the slow ones too; it imports every test file, in a process of its own.

    Raises RuntimeError with pytest's last lines where a file can't be collected.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    count = re.search(r"^(\d+) tests? collected", done.stdout, flags=re.M)
    if done.returncode or count is None:
        raise RuntimeError("\n".join((done.stdout + done.stderr).splitlines()[-5:]))
    return int(count[1])


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


def routes() -> dict[str, Route]:
    """The routes that users take, on the bundled model: of a warm question in three modes and of one that the
    guide leads, as for every model without an allocator; of a `Selector`; of packing for another question.
    """
    from arr_coc import ARRCOCModel, ARRCOCQwen, Selector
    from arr_coc.files.images import open_image
    from arr_coc.files.saved import BUNDLED
    from arr_coc.pixels import pack_for

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


def main() -> None:
    """Print the figures."""
    for package in (WHEEL, LAB):
        sizes = {path: path.read_text(encoding="utf-8").count("\n") for path in modules(package)}
        print(f"{package.name}: {sum(sizes.values()):,} lines of Python in {len(sizes)} files")
        rooms: dict[str, list[int]] = defaultdict(list)
        for path, count in sizes.items():
            rooms[path.relative_to(package).parts[0].removesuffix(".py")].append(count)
        for room, counts in sorted(rooms.items(), key=lambda item: -sum(item[1])):
            print(f"  {room:14} {sum(counts):7,} lines in {len(counts):3} files")
    for package in (WHEEL, LAB):
        docs, comments = prose(package)
        print(f"{package.name}: docstrings {docs:.1%} of lines, comments {comments:.1%}")
    print(f"circles of imports: {', '.join(f'{len(c)} files' for c in circles()) or 'none'}")
    print(f"imports of private names: {len(private_imports())}")
    print(f"class names used twice or more: {len(shared_class_names())}")
    print(f"function names of the wheel used twice or more: {len(shared_function_names())}")
    for name, counts in routes().items():
        length = f"{counts.functions} functions, {counts.moves} moves between files"
        print(f"{name:18} {counts.files} files, {length}")
    print(f"tests collected: {tests_collected():,}")


if __name__ == "__main__":
    main()
