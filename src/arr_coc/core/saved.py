"""Files of the layer: its weights and settings in an allocator folder, read and written without any model.

    arr_coc_config.json    the layer's configuration, and the base model that it was trained for
    arr_coc.safetensors    its weights

Only safetensors are ever read. Whatever can't be read is a ValueError of one line that names the file and the
remedy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from arr_coc.core.config import ARRCOCConfig
from arr_coc.core.layer import ARRCOCLayer

CONFIG_NAME = "arr_coc_config.json"
WEIGHTS_NAME = "arr_coc.safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
"""Files of weights that can run code, which are never loaded."""
BUNDLED = Path(__file__).parents[1] / "bundled"
"""The model, the allocator and the sample inside the package."""


def one_line(error: BaseException, most: int = 300) -> str:
    """The message of an error in one line of at most `most` characters."""
    return " ".join(str(error).split())[:most]


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of an allocator folder.

    Raises:
        ValueError: no such file, or no valid one.
    """
    path = folder / CONFIG_NAME
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        missing = {"layer", "base_model", "base_model_type", "base_dim"} - set(settings)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{str(folder)!r} is not an allocator folder: {CONFIG_NAME} can't be read ({one_line(error)})"
        ) from error
    if missing:
        raise ValueError(
            f"{str(path)!r} lacks {', '.join(sorted(missing))}; save the allocator again with save_pretrained"
        )
    for name in ("base_model", "base_revision"):
        if not isinstance(settings.get(name), str | None):
            raise ValueError(f"{name} in {str(path)!r} is {settings[name]!r} and not a name: correct it")
    return settings


def read_layer(folder: Path) -> ARRCOCLayer:
    """Read the layer of an allocator folder, on the CPU; strict.

    Raises:
        ValueError: no settings; weights missing, pickled or of other shapes.
    """
    settings, weights = read_settings(folder), folder / WEIGHTS_NAME
    if not weights.is_file():
        pickles = [file.name for pattern in PICKLES for file in folder.glob(pattern)]
        hint = f" (it has {pickles[0]}, but pickles are never loaded: convert them)" if pickles else ""
        raise ValueError(
            f"the allocator {str(folder)!r} has no {WEIGHTS_NAME}{hint}; save it again with save_pretrained"
        )
    try:
        layer = ARRCOCLayer(ARRCOCConfig.from_dict(settings["layer"]))
        layer.load_state_dict(load_file(weights), strict=True)
    except (RuntimeError, SafetensorError, OSError, TypeError) as error:
        raise ValueError(
            f"the weights in {str(weights)!r} don't fit {CONFIG_NAME}: {one_line(error)}"
        ) from error
    layer.trained = bool(settings.get("trained", True))
    return layer


def save_layer(layer: ARRCOCLayer, folder: Path, base: dict[str, Any]) -> None:
    """Write a layer and its settings.

    Args:
        layer: the learned part.
        folder: made if it is missing.
        base: base_model, base_revision, base_model_type, base_dim.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in layer.state_dict().items()}
    save_file(weights, folder / WEIGHTS_NAME)
    settings = {"layer": layer.config.to_dict(), "trained": layer.trained, **base}
    (folder / CONFIG_NAME).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
