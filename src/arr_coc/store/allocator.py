"""The allocator folder: everything trained for one base model.

arr_coc_config.json, arr_coc.safetensors    the layer, its settings and the name of its base model
basis.safetensors, stem.safetensors         principal components of the encoder; the stem
guide/guide.safetensors                     a guide other than the bundled one
tower4, tower16.safetensors                 trained compressors
{., partial, coarse}/adapter_*              LoRAs for pruned prompts, partial encoding, coarse views
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from arr_coc.choose.layer import ARRCOCLayer, save_layer
from arr_coc.choose.stem import Familiarity, Stem, load_stem, save_stem
from arr_coc.files.atomic import (
    folder_lock,
    make_folder,
    move_files,
    one_line,
    temporary_folder,
    write_atomic,
)
from arr_coc.files.paths import CONFIG_NAME, base_settings
from arr_coc.files.vetting import check_file
from arr_coc.guide.guide import GUIDE_FILE, GUIDE_FOLDER
from arr_coc.seam.gestalt import REMOVED, load_compressors, save_compressors
from arr_coc.seam.lora import FILES as LORA_FILES
from arr_coc.seam.lora import LoRAs
from arr_coc.store.checkpoint import (
    ALLOCATOR_FILES,
    BUNDLED_ALLOCATOR,
    BUNDLED_MODEL,
    GUIDE,
    base_revision,
    load_layer,
)

SAVING = ".saving-"  # prefix of the temporary folder that an allocator is written to first


def save_learned(
    layer: ARRCOCLayer,
    stem: Stem | None,
    compressors: Mapping[str, Any],
    loras: LoRAs,
    base: PreTrainedModel,
    folder: Path,
    base_name: str | None,
    guide: Path | None = None,
    more: Mapping[str, bytes] | None = None,
) -> None:
    """Write everything trained for a base model, with that model's name, commit and shape, never its weights.

    Files of an older allocator are replaced or removed once all new ones are written; a failure leaves the
    folder unchanged. If two processes save at once, the files of one of them remain.

    `more` are other files by name; `base_name` is the name to load the base by.
    `guide` is the folder of a guide to save; None: the bundled one, which isn't saved.

    Raises:
        ValueError: the folder can't be made or written, or holds another package's adapter.
    """
    make_folder(folder)
    _refuse_other_adapter(folder)
    config = base.config
    named = {
        **base_settings(base_name, folder),
        "base_revision": base_revision(base),
        "base_model_type": config.model_type,
        "base_dim": config.get_text_config().hidden_size,
    }
    try:
        with temporary_folder(SAVING, folder) as new:
            save_layer(layer, new, named)
            if stem is not None:
                save_stem(stem, new)
            save_compressors(compressors, new)
            loras.save(new)
            if guide is not None:  # may lie in this folder
                write_atomic((guide / GUIDE_FILE).read_bytes(), make_folder(new / GUIDE_FOLDER) / GUIDE_FILE)
            for name, content in (more or {}).items():
                write_atomic(content, new / name)
            # The settings come last: they hold the weights' digest, so that files half moved by a kill are
            # refused when they are read.
            removed = (f"{name}.safetensors" for name in REMOVED)
            names = sorted((*ALLOCATOR_FILES, *removed, *(more or {})), key=lambda name: name == CONFIG_NAME)
            move_files(new, folder, names)
    except TimeoutError as error:
        raise ValueError(
            f"the allocator can't be written into {str(folder)!r} ({error}): try again"
        ) from error
    except OSError as error:
        raise ValueError(
            f"the allocator can't be written into {str(folder)!r} ({one_line(error)}); make room there, or "
            "name another folder"
        ) from error


def _refuse_other_adapter(folder: Path) -> None:
    """Raise a ValueError if a folder holds a LoRA without other files of an allocator."""
    names = [name for name in ALLOCATOR_FILES if (folder / name).exists()]
    if names and not set(names) - set(LORA_FILES):
        raise ValueError(
            f"{str(folder)!r} has an adapter of its own ({names[0]}), which an allocator would replace: "
            "name another folder"
        )


def load_learned(
    folder: Path | None, base: PreTrainedModel, guide: str | Path | None = None
) -> dict[str, Any]:
    """Read an allocator folder as keyword arguments of `ARRCOCModel`; the base model isn't changed.

    `folder` may be None: nothing was trained. `guide`, the folder of a guide, replaces the allocator's own.

    Raises:
        ValueError: a file doesn't fit the base model, is damaged, or links to elsewhere.
    """
    if folder is None:
        return {"guide": guide}
    try:
        with folder_lock(folder, shared=True):
            return _read(folder, base, guide)
    except TimeoutError as error:
        raise ValueError(f"the allocator {str(folder)!r} can't be read ({error}): try again later") from error


def _read(folder: Path, base: PreTrainedModel, guide: str | Path | None) -> dict[str, Any]:
    """As `load_learned`, while no process writes to the folder."""
    for name in ALLOCATOR_FILES:
        if (folder / name).exists():
            check_file(folder / name, folder)
    layer = load_layer(folder, base)
    dim = layer.config.dim
    loras = LoRAs(base)
    loras.load(folder)
    stem = load_stem(folder, dim)
    # The bundled stem knows which pictures the bundled model was trained on, if the allocator's own doesn't.
    return {
        "layer": layer,
        "stem": stem,
        "familiarity_stem": None if stem and stem.familiarity else _bundled_stem(base),
        "compressors": load_compressors(folder),
        "loras": loras,
        "guide": folder / GUIDE_FOLDER if guide is None and (folder / GUIDE).is_file() else guide,
    }


def _bundled_stem(base: PreTrainedModel) -> Stem | None:
    """Return the bundled allocator's stem for the bundled base model; None for others."""
    if base.config.name_or_path != str(BUNDLED_MODEL):
        return None
    stem = load_stem(BUNDLED_ALLOCATOR, base.config.get_text_config().hidden_size)
    return None if stem is None else stem.requires_grad_(False)


# Added to weight names by peft and torch.compile.
_WRAPPERS = re.compile(r"^base_model\.model\.|_orig_mod\.|base_layer\.|original_module\.")
_ADAPTERS = re.compile(r"\.(lora_\w+|modules_to_save)\.")  # weights that peft adds


def fingerprint(module: nn.Module) -> str:
    """Return a digest, sixteen hex digits, of up to 64 values of each weight and their names, for result
    files.

    Left out are adapters of peft, how it and torch.compile rename weights, and familiarity, which is fitted
    to a stem afterwards and changes no answer.
    """
    later = tuple(f"{name}." for name, part in module.named_modules() if isinstance(part, Familiarity))
    weights = {
        _WRAPPERS.sub("", name): values
        for name, values in module.state_dict().items()
        if not _ADAPTERS.search(name) and not name.startswith(later)
    }
    digest = hashlib.sha256()
    for name, values in sorted(weights.items()):
        flat = values.flatten()
        some = flat[:: max(1, len(flat) // 64)][:64]
        digest.update(name.encode() + some.double().cpu().numpy().tobytes())  # NumPy has no bfloat16
    return digest.hexdigest()[:16]
