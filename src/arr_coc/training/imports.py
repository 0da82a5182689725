"""Import of the user's own modules that a recipe names, such as one that registers a channel group."""

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
        raise ValueError(f"imports has {name!r}, which is no module name: write x for a file x.py")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"imports has {name!r}, a module that does not exist: put it beside the recipe or into the "
                "current folder, or install it"
            ) from error
        raise _failure(name, error) from error
    except Exception as error:
        raise _failure(name, error) from error


def _failure(name: str, error: Exception) -> ValueError:
    detail = " ".join(str(error).split())[:200]
    return ValueError(
        f"imports has {name!r}, which can't be imported ({type(error).__name__}: {detail}): correct it"
    )


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
