"""Loading of base models with their processors, and of the learned layer that belongs to one.

An allocator folder holds at least `arr_coc.safetensors` (the learned layer alone) and `arr_coc_config.json`
(its settings, and the base model it was trained for with its commit on the Hub). No weight may be missing,
left over or of another shape, and the base model is loaded at that commit. Only safetensors are read and no
code of a repository is run. A failure is a ValueError of one line that names what can't be loaded and the
remedy.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from safetensors import SafetensorError
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedConfig, PreTrainedModel

from arr_coc.core.layer import ARRCOCLayer
from arr_coc.core.saved import BUNDLED as BUNDLED_FOLDER
from arr_coc.core.saved import CONFIG_NAME, PICKLES, WEIGHTS_NAME, one_line, read_layer, read_settings
from arr_coc.seam import check_model_type
from arr_coc.seam.lora import FILES as LORA_FILES
from arr_coc.store.hub import BUNDLED, commit_of, download, is_local, unreachable

BUNDLED_MODEL = BUNDLED_FOLDER / "model"
BUNDLED_ALLOCATOR = BUNDLED_FOLDER / "allocator"

ALLOCATOR_FILES = (
    CONFIG_NAME,
    WEIGHTS_NAME,
    *(f"{part}.safetensors" for part in ("stem", "conv4", "conv16")),
    *(f"{place}{name}" for place in ("", "partial/", "coarse/") for name in LORA_FILES),
)
"""All that an allocator folder may hold, by name: what is fetched from the Hub and what may go there."""

logger = logging.getLogger(__name__)


class Source(NamedTuple):
    """The base model behind a name, its revision on the Hub (None: the newest), and its allocator folder."""

    base: str
    revision: str | None
    allocator: Path | None


def find(name: str | Path | None, allocator: str | Path | None, revision: str | None = None) -> Source:
    """The base model and allocator that a name means; an allocator's base model at the commit saved with it.

    Args:
        name: base model or allocator; None or "bundled": the bundled model.
        allocator: another allocator for it; None: its own, if it has one.
        revision: branch, tag or commit of `name` on the Hub; None: the newest.

    Raises:
        ValueError: not there, a revision of a folder, or the Hub can't be reached.
    """
    name = None if name in (None, "", BUNDLED) else name
    if revision is not None and (name is None or is_local(name)):
        raise ValueError(
            f"revision {revision!r} is of a repository on the Hub, which {str(name or BUNDLED)!r} is not; "
            "leave it out"
        )
    own = find_allocator(BUNDLED_ALLOCATOR if name is None else name, revision)
    folder = own if allocator is None else find_allocator(allocator)
    if allocator is not None and folder is None:
        raise ValueError(
            f"{str(allocator)!r} is not an allocator: it has no {CONFIG_NAME}; give a folder that "
            "save_pretrained wrote"
        )
    if name is not None and own is not None and not (own / "config.json").is_file():
        settings = read_settings(own)
        if not settings["base_model"]:
            raise ValueError(
                f"the allocator {str(name)!r} doesn't say which base model it is for: name that one, and "
                "give this as its `allocator`"
            )
        return Source(settings["base_model"], settings.get("base_revision"), folder)
    if revision is None and name is not None and folder is not None:
        settings = read_settings(folder)
        revision = settings.get("base_revision") if settings["base_model"] == str(name) else None
    return Source(BUNDLED if name is None else str(name), revision, folder)


def load_base(
    name: str | Path, dtype: torch.dtype | str | None = None, revision: str | None = None
) -> tuple[PreTrainedModel, Any]:
    """Load a base model and its processor from a folder or the Hub, all of it from one commit.

    Args:
        name: a model folder, a Hub name, or "bundled".
        dtype: type of the weights; None: as saved.
        revision: branch, tag or commit hash on the Hub; None: the newest. `base_revision` returns the commit.

    Raises:
        ValueError: nothing there, no network, an unsupported family, weights missing, pickled or of other
            shapes.
    """
    source = str(BUNDLED_MODEL) if str(name) == BUNDLED else str(name)
    folder = Path(source).expanduser()
    if str(name) == BUNDLED and not folder.is_dir():
        raise ValueError(
            "the bundled model is missing from this installation; reinstall arr-coc or name a model folder"
        )
    if is_local(source):
        check_model_folder(folder)
        source, commit = str(folder), None
    else:
        commit = commit_of(source, revision)
    try:
        config, _ = PreTrainedConfig.get_config_dict(source, revision=commit)
        check_model_type(str(config.get("model_type")))
        loaded: Any = AutoModelForImageTextToText.from_pretrained(
            source,
            revision=commit,
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
            f"the weights of {source!r} don't fit its config.json ({one_line(error)}); save model and config "
            "together again with save_pretrained"
        ) from error
    if report["missing_keys"] or report["mismatched_keys"]:
        lacking = sorted(report["missing_keys"]) or sorted(report["mismatched_keys"])
        raise ValueError(
            f"the weights of {source!r} don't fit its config.json: {len(lacking)} missing or of another "
            f"shape (first: {lacking[0]}); save model and config together again with save_pretrained"
        )
    try:
        processor = AutoProcessor.from_pretrained(source, revision=commit, trust_remote_code=False)
    except Exception as error:  # each parser of a tokenizer or image processor file has its own errors
        raise ValueError(
            f"the processor of {source!r} can't be loaded ({one_line(error)}); save it beside the model with "
            "its own save_pretrained"
        ) from error
    model.config._commit_hash = commit  # where earlier versions of transformers keep it
    return model.eval(), processor


def base_revision(model: PreTrainedModel) -> str | None:
    """The commit on the Hub that a base model was loaded from; None if it is from a folder, or unknown."""
    return getattr(model.config, "_commit_hash", None)


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
            "loaded; convert them to safetensors (save_pretrained of transformers writes them)"
        )
    raise ValueError(
        f"{str(folder)!r} has no weights (*.safetensors); copy them there or save the model again"
    )


def find_allocator(name: str | Path, revision: str | None = None) -> Path | None:
    """The allocator folder of a name; None if there is an ordinary model alone.

    Args:
        name: a folder, or a Hub name.
        revision: branch, tag or commit on the Hub; None: the newest.

    Raises:
        ValueError: the Hub can't be reached.
    """
    if is_local(name):
        folder = Path(name).expanduser()
    else:  # with config.json there is a base model in the repository, too
        folder = download(str(name), (*ALLOCATOR_FILES, "config.json"), revision)
    return folder if (folder / CONFIG_NAME).is_file() else None


def load_layer(folder: Path, model: PreTrainedModel) -> ARRCOCLayer:
    """Load the learned layer that belongs to a base model; every weight must be there and fit.

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
            f"{config.name_or_path!r} ({config.model_type}, width {dim}); load it with its own base model, "
            "or leave `allocator` out"
        )
    was, now = settings.get("base_revision"), base_revision(model)
    if was and now and was != now:
        logger.warning(
            "the allocator %s was trained for revision %s of %s, and this is revision %s",
            folder,
            was[:12],
            settings["base_model"],
            now[:12],
        )
    return read_layer(folder)
