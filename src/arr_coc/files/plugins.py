"""What is added to the package: by other distributions, by extras, and by modules of the user's own.

plugins("commands")               {"eval": EntryPoint(...), ...}
plugin("layers", "query-blind")   the object itself, imported now
install_line("video")             "pip install 'av>=15'"
import_modules(["my_channels"])   what it registers is known from then on
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

EXTRAS = {
    "app": ("gradio>=6.27,<7",),
    "pdf": ("pypdfium2>=5",),
    "video": ("av>=15",),
    "train": ("accelerate>=1.3",),
}
"""Extra of arr-coc -> its requirements, as in pyproject.toml."""


def install_line(extra: str, extras: Mapping[str, tuple[str, ...]] = EXTRAS) -> str:
    """The command that installs the packages of an extra, ready for a shell."""
    # Not `arr-coc[video]`: an index need not have arr-coc, and it would replace an installation from a clone.
    return "pip install " + " ".join(f"'{requirement}'" for requirement in extras[extra])


@cache
def plugins(kind: str) -> dict[str, EntryPoint]:
    """The entry points of group "arr_coc.KIND" by name, none of them imported.

    Kinds: `commands` (functions of the command line), `data` (tuples of `DataSet`), `rows` (training rows
    that are made, not read), `layers`, `recipes`, `teachers` and `trainers` (what else `arr-coc train`
    teaches), `probes` and `cases` of the app, `cards` (figures of a model card).
    """
    return {point.name: point for point in entry_points(group=f"arr_coc.{kind}")}


def plugin(kind: str, name: str) -> Any:
    """The object that an entry point names, imported.

    Raises:
        ValueError: no installed distribution has it.
    """
    if name not in plugins(kind):
        raise ValueError(missing(f"{name!r} of {kind}"))
    return plugins(kind)[name].load()


def missing(what: str) -> str:
    """The sentence about something that the distribution of benchmarks and drawn pages would bring."""
    return (
        f"{what} is a part of arr-coc-lab, which is not installed: in a clone of arr-coc, pip install ./lab"
    )


def import_modules(names: Iterable[str], folders: Sequence[Path] = ()) -> None:
    """Import a user's own modules in order, which register channels, rivals, families, modes or commands.

    Law: code is run here, so names come from a recipe file or the command line, never from an allocator
    folder or the Hub.

    Args:
        names: dotted module names.
        folders: where to look after the usual places, and before the current folder.

    Raises:
        ValueError: a name is no module name, there is no such module, or importing it fails.
    """
    with _search_path([*folders, Path.cwd()]):
        for name in names:
            _import(name)


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
    except (Exception, SystemExit) as error:  # whatever the user's own code raises
        detail = " ".join(str(error).split())[:200]
        raise ValueError(
            f"module {name!r} can't be imported ({type(error).__name__}: {detail}): correct it"
        ) from error


@contextmanager
def _search_path(folders: Sequence[Path]) -> Generator[None]:
    """`sys.path` with more folders at its end, inside the block."""
    extra = [str(folder.resolve()) for folder in folders]
    before = list(sys.path)
    sys.path.extend(folder for folder in extra if folder not in before)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before
