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
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from arr_coc.choose.config import ARRCOCConfig
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.texture import CHANNEL_GROUPS, Basis
from arr_coc.files.atomic import write_whole
from arr_coc.files.paths import shorten
from arr_coc.files.provenance import check_records
from arr_coc.files.saved import (
    CONFIG_NAME,
    PICKLES,
    check_finite,
    made_folder,
    read_settings,
    reading,
    write_tensors,
)

WEIGHTS_NAME = "arr_coc.safetensors"
BASIS_NAME = "basis.safetensors"
DIGEST = "weights_sha256"
"""The setting that says which weights an allocator's settings were saved with; older ones lack it."""


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
