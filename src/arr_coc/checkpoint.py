"""Loading and saving: base models with their processors, and the small learned layer beside them.

An allocator folder holds two files, `arr_coc.safetensors` (the learned layer alone) and
`arr_coc_config.json` (its settings and the base model it was trained for). Loading is strict: no weight
may be missing, left over or of another shape. Only safetensors are ever read and no code of a repository
is ever run. Whatever can't be loaded is a ValueError of one line that names it and the remedy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedConfig, PreTrainedModel

from arr_coc.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.seam import check_model_type

BUNDLED = "bundled"
"""The name of the bundled base model in a saved allocator's settings."""

BUNDLED_MODEL = Path(__file__).parent / "bundled" / "model"
BUNDLED_ALLOCATOR = Path(__file__).parent / "bundled" / "allocator"

CONFIG_NAME = "arr_coc_config.json"
WEIGHTS_NAME = "arr_coc.safetensors"
LORA_FILES = ("adapter_config.json", "adapter_model.safetensors")
ALLOCATOR_FILES = (CONFIG_NAME, "*.safetensors", LORA_FILES[0], *(f"*/{name}" for name in LORA_FILES))
"""What is fetched of an allocator on the Hub."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def one_line(error: BaseException) -> str:
    """The first line of an error's message, at most 200 characters."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


def load_base(name: str | Path, dtype: torch.dtype | str | None = None) -> tuple[PreTrainedModel, Any]:
    """Load a base model and its processor from a folder or the Hub.

    Args:
        name: a model folder, a Hub name, or "bundled".
        dtype: of the weights; None: as saved.

    Raises:
        ValueError: nothing there, no network, an unsupported family, weights missing, pickled or of
        other shapes.
    """
    source = str(BUNDLED_MODEL) if str(name) == BUNDLED else str(name)
    folder = Path(source).expanduser()
    if str(name) == BUNDLED and not folder.is_dir():
        raise ValueError(
            "the bundled model is missing from this installation; reinstall arr-coc or name a model folder"
        )
    if folder.exists() or source.startswith((".", "/", "~")):
        check_model_folder(folder)
        source = str(folder)
    try:
        config, _ = PreTrainedConfig.get_config_dict(source)
        check_model_type(str(config.get("model_type")))
        loaded: Any = AutoModelForImageTextToText.from_pretrained(
            source,
            dtype=dtype or "auto",
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        model, report = loaded
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        if folder.is_dir():
            raise ValueError(f"model folder {source!r} can't be read: {one_line(error)}") from error
        raise ValueError(unreachable(source, error)) from error
    except (RuntimeError, SafetensorError) as error:  # shapes, or a file that is no safetensors
        raise ValueError(
            f"the weights of {source!r} don't fit its config.json ({one_line(error)}); "
            "save model and config together again with save_pretrained"
        ) from error
    if report["missing_keys"] or report["mismatched_keys"]:
        lacking = sorted(report["missing_keys"]) or sorted(report["mismatched_keys"])
        raise ValueError(
            f"the weights of {source!r} don't fit its config.json: {len(lacking)} missing or of another "
            f"shape (first: {lacking[0]}); save model and config together again with save_pretrained"
        )
    try:
        processor = AutoProcessor.from_pretrained(source, trust_remote_code=False)
    except (
        Exception
    ) as error:  # tokenizer and image processor files fail in as many ways as they have parsers
        raise ValueError(
            f"the processor of {source!r} can't be loaded ({one_line(error)}); "
            "save it beside the model with its own save_pretrained"
        ) from error
    return model.eval(), processor


def check_model_folder(folder: Path) -> None:
    """Raise a ValueError if a folder is not an ordinary model folder with safetensors."""
    if not folder.is_dir():
        raise ValueError(
            f"model folder {str(folder)!r} doesn't exist; give a folder, a Hub name, or no name for the "
            "bundled model"
        )
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{str(folder)!r} is not a model folder: it has no config.json; give the folder that "
            "save_pretrained wrote"
        )
    if any(folder.glob("*.safetensors")):
        return
    pickles = [file.name for pattern in PICKLES for file in folder.glob(pattern)]
    if pickles:
        raise ValueError(
            f"{str(folder)!r} has only pickled weights ({pickles[0]}), which can run code and are never "
            "loaded; "
            "convert them to safetensors (save_pretrained of transformers writes them)"
        )
    raise ValueError(
        f"{str(folder)!r} has no weights (*.safetensors); copy them there or save the model again"
    )


def unreachable(name: str, error: BaseException) -> str:
    """What to say when a Hub name can't be had."""
    return (
        f"model {name!r} can't be reached or doesn't exist on the Hub ({one_line(error)}); "
        "give a local model folder instead, or no name for the bundled model"
    )


def find_allocator(name: str | Path) -> Path | None:
    """Find the allocator folder behind a name; None if that name holds an ordinary model.

    Args:
        name: a folder, or a Hub name.

    Raises:
        ValueError: the Hub can't be reached.
    """
    folder = Path(name).expanduser()
    if folder.exists() or str(name).startswith((".", "/", "~")):
        return folder if (folder / CONFIG_NAME).is_file() else None
    try:
        folder = Path(snapshot_download(str(name), allow_patterns=list(ALLOCATOR_FILES)))
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise ValueError(unreachable(str(name), error)) from error
    return folder if (folder / CONFIG_NAME).is_file() else None


def read_settings(folder: Path) -> dict[str, Any]:
    """Read an allocator folder's settings.

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
    return settings


def save_layer(layer: ARRCOCLayer, folder: Path, base: dict[str, Any]) -> None:
    """Write the learned layer and its settings. `base`: base_model, base_model_type, base_dim."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in layer.state_dict().items()}
    save_file(weights, folder / WEIGHTS_NAME)
    settings = {"layer": layer.config.to_dict(), "trained": layer.trained, **base}
    (folder / CONFIG_NAME).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load_layer(folder: Path, model: PreTrainedModel) -> ARRCOCLayer:
    """Load the learned layer that belongs to a base model; strict.

    Raises:
        ValueError: trained for another base model; weights missing, pickled or of other shapes.
    """
    settings = read_settings(folder)
    config = model.config
    dim = config.get_text_config().hidden_size
    if (settings["base_model_type"], settings["base_dim"]) != (config.model_type, dim):
        raise ValueError(
            f"the allocator {str(folder)!r} was saved for {settings['base_model']!r} "
            f"({settings['base_model_type']}, width {settings['base_dim']}) and doesn't fit "
            f"{config.name_or_path!r} "
            f"({config.model_type}, width {dim}); load it with its own base model, or leave `allocator` "
            "out"
        )
    weights = folder / WEIGHTS_NAME
    if not weights.is_file():
        pickles = [file.name for pattern in PICKLES for file in folder.glob(pattern)]
        found = f" (it has {pickles[0]}, but pickles are never loaded: convert them)" if pickles else ""
        raise ValueError(
            f"the allocator {str(folder)!r} has no {WEIGHTS_NAME}{found}; save it again with save_pretrained"
        )
    try:
        layer = ARRCOCLayer(ARRCOCConfig.from_dict(settings["layer"]))
        layer.load_state_dict(load_file(weights), strict=True)
    except (RuntimeError, SafetensorError, OSError, TypeError) as error:
        detail = " ".join(str(error).split())[:300]
        raise ValueError(f"the weights in {str(weights)!r} don't fit {CONFIG_NAME}: {detail}") from error
    layer.trained = bool(settings.get("trained", True))
    return layer


def upload(folder: Path, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Upload an allocator folder to the Hub; returns the address of the commit."""
    api = HfApi(token=token)
    api.create_repo(repo_id, exist_ok=True, private=private)
    return str(api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Add ARR-COC allocator"))
