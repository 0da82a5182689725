"""Import of a user's own modules, which register channels, rivals, families, modes or commands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path


def import_modules(names: Iterable[str], folders: Sequence[Path] = ()) -> None:
    """Import modules in order; one that is imported already is not run again.

    Code is run here, so only names that the user wrote may come this far: those of a recipe file or of the
    command line, never those of an allocator folder or of the Hub.

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
