"""What adds to the package: plug-ins of other distributions, optional packages, a user's own modules."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from arr_coc.files.atomic import one_line

EXTRAS = {  # requirements by extra, as in pyproject.toml
    "app": ("gradio>=6.27,<7",),
    "pdf": ("pypdfium2>=5",),
    "video": ("av>=15",),
    "train": ("accelerate>=1.3",),
    "ocr": ("rapidocr>=3.10", "onnxruntime>=1.20"),
    "proxy": ("starlette>=0.46", "uvicorn>=0.34", "httpx>=0.28", "prometheus-client>=0.20", "cachetools>=5"),
    "mcp": ("mcp>=2,<3", "cachetools>=5"),
}


def install_line(extra: str, extras: Mapping[str, tuple[str, ...]] = EXTRAS) -> str:
    """Return the command that installs the packages of an extra."""
    # Not `arr-coc[video]`: an index need not have arr-coc, and it would replace an installation from a clone.
    return "pip install " + " ".join(f"'{requirement}'" for requirement in extras[extra])


@cache
def plugins(kind: str) -> dict[str, EntryPoint]:
    """Return the entry points of group "arr_coc.KIND" by name, without importing them.

    Kinds: `commands`, `data` (tuples of `DataSet`), `rows` (generated training rows), `layers`, `recipes`,
    `teachers` and `trainers` (of `arr-coc train`), `probes` and `cases` (of the app), `cards` (of model
    cards).
    """
    return {point.name: point for point in entry_points(group=f"arr_coc.{kind}")}


def plugin(kind: str, name: str) -> Any:
    """Import the object of an entry point and return it.

    Raises:
        ValueError: no installed distribution has it, or the one that does can't be imported.
    """
    if name not in plugins(kind):
        raise ValueError(missing(f"{name!r} of {kind}"))
    return load_point(plugins(kind)[name])


def load_point(point: EntryPoint) -> Any:
    """Import the object of an entry point; raise a ValueError that names its distribution if that fails."""
    try:
        return point.load()
    except (ImportError, AttributeError) as error:  # moved or removed since it was installed, or too old
        owner, why = "its distribution" if point.dist is None else point.dist.name, one_line(error)
        kind = point.group.removeprefix("arr_coc.")
        raise ValueError(
            f"{point.name!r} of {kind} can't be imported ({why}): install {owner} again, or uninstall it"
        ) from error


def missing(what: str) -> str:
    """Return the message for a part of arr-coc-lab that isn't installed."""
    return (
        f"{what} is a part of arr-coc-lab, which is not installed: in a clone of arr-coc, pip install ./lab"
    )


def import_modules(names: Iterable[str], folders: Sequence[Path] = ()) -> None:
    """Import a user's modules in order, which may register channels, rivals, families, modes or commands.

    Law: code is run here, so names come from a recipe file (see `check_named`) or the command line, never
    from an allocator folder or the Hub. `folders`, then the current one, are searched after the usual places.

    Raises:
        ValueError: an invalid or unknown module name, or an import that fails.
    """
    with _search_path([*folders, Path.cwd()]):
        for name in names:
            _import(name)


def check_named(names: Iterable[str], folder: Path) -> None:
    """Raise a ValueError for a module that a recipe, perhaps from others, may not have imported.

    A recipe may name modules beside itself or in the current folder, those of distributions that add to
    arr-coc by entry points, and what is imported already, as by `--import`.
    """
    every = entry_points()
    groups = [every.select(group=group) for group in every.groups if group.startswith("arr_coc.")]
    adding = {point.module.partition(".")[0] for group in groups for point in group}
    for name in names:
        top = name.partition(".")[0]
        places = [place / part for place in (folder, Path.cwd()) for part in (top, f"{top}.py")]
        beside = any(place.exists() for place in places)
        if beside or top in adding or name in sys.modules or not top.isidentifier():
            continue
        if importlib.util.find_spec(top) is not None:
            raise ValueError(
                f"module {name!r} is neither beside the recipe nor in the current folder, and of no "
                f"distribution that adds to arr-coc: if you trust it, arr-coc --import {name}"
            )


def _import(name: str) -> None:
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{name!r} is no module name: write x for a file x.py")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"module {name!r} needs {error.name!r}, which is not installed: install it"
            ) from error
        raise ValueError(
            f"module {name!r} does not exist: put it into the current folder, or beside the recipe that "
            "names it, or install it"
        ) from error
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        detail = " ".join(str(error).split())[:200]
        raise ValueError(
            f"module {name!r} can't be imported ({type(error).__name__}: {detail}): correct it"
        ) from error


@contextmanager
def _search_path(folders: Sequence[Path]) -> Generator[None]:
    """Append folders to `sys.path` inside of the block."""
    extra = [str(folder.resolve()) for folder in folders]
    before = list(sys.path)
    sys.path.extend(folder for folder in extra if folder not in before)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before
