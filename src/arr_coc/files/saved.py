"""Read and write weights and settings, which may come from anybody: safetensors and JSON, never pickles."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from arr_coc.files.atomic import one_line, write_atomic
from arr_coc.files.paths import CONFIG_NAME

BUNDLED = Path(__file__).parents[1] / "bundled"  # the model, allocator and sample inside the package
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")  # weight files that can run code
MAX_BYTES = 1_000_000  # of a settings file


@contextmanager
def reading(what: str, remedy: str) -> Generator[None, None, None]:
    """Turn any parser error in the block but MemoryError into the ValueError "WHAT (message); REMEDY"."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except BaseException as error:
        # In a damaged file a Rust library may panic, which isn't an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{what} ({one_line(error, 200)}); {remedy}") from error


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors of any device and layout as a safetensors file, atomically; `metadata` is for its header.

    Raises:
        OSError: as `write_atomic`.
        RuntimeError: two tensors share memory.
    """
    # Not safetensors' `save_file`, whose files only their owner can read.
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomic(save(plain, metadata=metadata), path)


def check_finite(weights: Mapping[str, Tensor]) -> None:
    """Raise a ValueError that names the first weight with NaN or infinity."""
    for name, weight in weights.items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise ValueError(f"{name} has values that aren't finite")


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of an allocator folder; raise ValueError if they are missing or invalid."""
    path = folder / CONFIG_NAME
    with reading(
        f"{str(folder)!r} is not an allocator folder: {CONFIG_NAME} can't be read",
        "save the allocator again with save_pretrained",
    ):
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES / 1e6:g} MB")
        settings = json.loads(path.read_text(encoding="utf-8-sig"))
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
