"""Files that are read and written without any model: settings as JSON, tensors as safetensors.

Pickles are never read. Whatever can't be read is a ValueError of one line that names the file and the remedy;
every file is written whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from arr_coc.files.atomic import one_line, write_whole

CONFIG_NAME = "arr_coc_config.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
"""Files of weights that can run code, which are never loaded."""
MOST_BYTES = 1_000_000
"""The most bytes of a file with settings."""
BUNDLED = Path(__file__).parents[1] / "bundled"
"""The model, the allocator and the sample inside the package."""


@contextmanager
def reading(what: str, remedy: str) -> Generator[None, None, None]:
    """Turn whatever a parser of a file raises inside the block into a ValueError of one line.

    A damaged file leads to any error at all: of types, of keys, of a library's own kind, or of a panic in
    Rust, which is no Exception. Lack of memory is no fault of a file and stays what it is.

    Args:
        what: beginning of the message, with the file's name: "the stem in 'a' can't be read".
        remedy: its end.

    Raises:
        ValueError: "WHAT (the error's message); REMEDY".
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{what} ({one_line(error, 200)}); {remedy}") from error


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as one safetensors file by `write_whole`.

    safetensors' own `save_file` lets nobody but the owner read what it writes.

    Args:
        tensors: by name, of any device and layout; no two share memory.
        path: as in `write_whole`.
        metadata: texts to keep in the file's header.

    Raises:
        OSError: as in `write_whole`.
        RuntimeError: two tensors share memory.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(save(plain, metadata=metadata), path)


def check_finite(weights: Mapping[str, Tensor]) -> None:
    """Raise a ValueError that names the first of some weights that has a NaN or an infinite number."""
    for name, weight in weights.items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise ValueError(f"{name} has values that aren't finite")


def made_folder(folder: Path) -> Path:
    """A folder that exists, made with those above it if it was missing.

    Raises:
        ValueError: it is a file, or can't be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # FileExistsError and NotADirectoryError where a file has the name
        reason = error.strerror or type(error).__name__
        raise ValueError(f"{str(folder)!r} can't be made a folder ({reason}); name another one") from error
    return folder


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of an allocator folder.

    Raises:
        ValueError: no such file, or no valid one.
    """
    path = folder / CONFIG_NAME
    with reading(
        f"{str(folder)!r} is not an allocator folder: {CONFIG_NAME} can't be read",
        "save the allocator again with save_pretrained",
    ):
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES / 1e6:g} MB")
        settings = json.loads(path.read_text(encoding="utf-8"))
        missing = {"layer", "base_model", "base_model_type", "base_dim"} - set(settings)
        if not missing and not isinstance(settings, dict):
            raise ValueError("it holds no object")
    if missing:
        raise ValueError(
            f"{str(path)!r} lacks {', '.join(sorted(missing))}; save the allocator again with save_pretrained"
        )
    for name in ("base_model", "base_beside", "base_revision"):
        if not isinstance(settings.get(name), str | None):
            raise ValueError(
                f"{name} in {str(path)!r} is {repr(settings[name])[:80]} and not a name: correct it"
            )
    return settings
