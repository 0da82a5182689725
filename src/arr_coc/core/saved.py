"""Files of the layer: its weights and settings in an allocator folder, read and written without any model.

    arr_coc_config.json    the layer's configuration, and the base model that it was trained for
    arr_coc.safetensors    its weights
    basis.safetensors      the basis of its channels "components", if it reads them

Only safetensors are ever read. Whatever can't be read is a ValueError of one line that names the file and the
remedy. Every file is written whole or not at all (`write_whole`, `write_tensors`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from arr_coc.core.config import ARRCOCConfig
from arr_coc.core.layer import ARRCOCLayer
from arr_coc.core.paths import shorten
from arr_coc.core.provenance import check_records
from arr_coc.core.texture import CHANNEL_GROUPS, Basis
from arr_coc.core.whole import one_line, write_whole

CONFIG_NAME = "arr_coc_config.json"
WEIGHTS_NAME = "arr_coc.safetensors"
BASIS_NAME = "basis.safetensors"
DIGEST = "weights_sha256"
"""The setting that says which weights an allocator's settings were saved with; older ones lack it."""
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


def read_layer(folder: Path) -> ARRCOCLayer:
    """Read the layer of an allocator folder, on the CPU; strict.

    Raises:
        ValueError: no settings; weights missing, pickled or of other shapes; a damaged basis; channel groups
            that no imported module registers.
    """
    settings, path = read_settings(folder), folder / WEIGHTS_NAME
    if not path.is_file():
        pickles = [file.name for pattern in PICKLES for file in folder.glob(pattern)]
        hint = f" (it has {pickles[0]}, but pickles are never loaded: convert them)" if pickles else ""
        raise ValueError(
            f"the allocator {str(folder)!r} has no {WEIGHTS_NAME}{hint}; save it again with save_pretrained"
        )
    if own := _own_groups(settings["layer"]):
        raise ValueError(
            f"the allocator {str(folder)!r} reads channel groups of a module that isn't imported: "
            f"{', '.join(map(shorten, own))}; import it first (arr-coc --import MODULE ...)"
        )
    with reading(
        f"the weights in {str(path)!r} don't fit {CONFIG_NAME}",
        "save the allocator again with save_pretrained",
    ):
        config, weights = ARRCOCConfig.from_dict(settings["layer"]), load_file(path)
        most = max((max(value.shape, default=0) for value in weights.values()), default=0)
        for name in ("dim", "heads", "rank"):
            if (getattr(config, name) or 0) > most:
                raise ValueError(f"{name} is {getattr(config, name)}, and no weight is that large")
        check_finite(weights)
        layer = ARRCOCLayer(config)
        layer.load_state_dict(weights, strict=True)
        if settings.get(DIGEST, digest := _digest(path)) != digest:
            raise ValueError("they are of another save, or somebody is saving there now")
    layer.trained = bool(settings.get("trained", True))
    layer.trained_on = check_records(settings.get("trained_on", ()))
    if (folder / BASIS_NAME).is_file():
        layer.basis = Basis.load(folder / BASIS_NAME)
    return layer


def _own_groups(layer: Any) -> list[str]:
    """The channel groups of a layer's settings that nothing has registered."""
    names = layer.get("channels") if isinstance(layer, dict) else None
    listed = names if isinstance(names, list) else []
    return [name for name in listed if isinstance(name, str) and name not in CHANNEL_GROUPS]


def _digest(path: Path) -> str:
    """A digest of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_layer(layer: ARRCOCLayer, folder: Path, base: dict[str, Any]) -> None:
    """Write a layer and its settings.

    Args:
        layer: the learned part.
        folder: made if it is missing.
        base: base_model, base_revision, base_model_type, base_dim.

    Raises:
        ValueError: the folder can't be made.
    """
    made_folder(folder)
    write_tensors(layer.state_dict(), folder / WEIGHTS_NAME)
    digest = _digest(folder / WEIGHTS_NAME)
    settings = {"layer": layer.config.to_dict(), "trained": layer.trained, **base, DIGEST: digest}
    if layer.trained_on:
        settings = {"trained_on": layer.trained_on, **settings}
    if layer.basis is not None:
        layer.basis.save(folder / BASIS_NAME)
    write_whole((json.dumps(settings, indent=2) + "\n").encode(), folder / CONFIG_NAME)
