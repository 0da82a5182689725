"""Loading of base models with their processors, and of the trained layer that belongs to one.

Laws: no weight may be missing, left over or of another shape; a base model is loaded at the commit that its
allocator was trained for; only safetensors are read, and no code of a repository is run.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoProcessor,
    GenerationConfig,
    PreTrainedModel,
)

from arr_coc.choose.layer import WEIGHTS_NAME, ARRCOCLayer, read_layer
from arr_coc.families import check_model_type
from arr_coc.files.hub import commit_of, download
from arr_coc.files.paths import BUNDLED_NAME, CONFIG_NAME, is_local, local_path, locate_base
from arr_coc.files.saved import BUNDLED as BUNDLED_FOLDER
from arr_coc.files.saved import read_settings, reading
from arr_coc.files.validation import short
from arr_coc.files.vetting import SMALL_FILES, Vetted, check_weights, small_files, vetted, weight_names
from arr_coc.files.worker import Worker
from arr_coc.guide.guide import GUIDE_FILE, GUIDE_FOLDER
from arr_coc.seam.lora import FILES as LORA_FILES
from arr_coc.seam.lora import FOLDERS
from arr_coc.seam.prompt import check_template
from arr_coc.seam.tower_compressor import TOWERS

logger = logging.getLogger(__name__)

BUNDLED_MODEL = BUNDLED_FOLDER / "model"
BUNDLED_ALLOCATOR = BUNDLED_FOLDER / "allocator"
BUNDLED_ABOUT = (  # what the bundled model can do
    "5 million parameters, taught on pages that this package draws: reads their titles, labelled values, "
    "tables, colours, shapes and counts; wrong about most other pictures"
)
# Cells (32 x 33) of the largest pages that the bundled model was trained to answer about: 1024 px a side,
# slightly stretched. Its LoRA for coarse views was trained on larger ones.
BUNDLED_CELLS = 1056

_BUILDING = Lock()  # transformers changes global state while it builds: a second thread would miss weights

GUIDE = f"{GUIDE_FOLDER}/{GUIDE_FILE}"  # a guide other than the bundled one
ALLOCATOR_FILES = (  # all files of an allocator folder; the layer and its settings must exist
    CONFIG_NAME,
    WEIGHTS_NAME,
    *(f"{part}.safetensors" for part in ("basis", "stem", *TOWERS)),
    GUIDE,
    *((Path(place) / name).as_posix() for place in FOLDERS.values() for name in LORA_FILES),
)

# Most parameters and buffers per byte of weights, reached by 4-bit and tied ones.
MAX_NUMBERS = 4


class ModelSource(NamedTuple):
    """A base model, its revision on the Hub (None: the newest), and the allocator folder for it."""

    base: str
    revision: str | None
    allocator: Path | None


def find(name: str | Path | None, allocator: str | Path | None, revision: str | None = None) -> ModelSource:
    """Return the base model and allocator that a name means; an allocator's base model at the commit saved
    with it.

    Args:
        name: base model or allocator; None or "bundled": the bundled model.
        allocator: another allocator for it; None: its own, if any.
        revision: branch, tag or commit of `name` on the Hub; None: the newest.

    Raises:
        ValueError: not found, a revision of a folder, or no connection to the Hub.
    """
    name = None if name in (None, "", BUNDLED_NAME) else name
    if revision is not None and (name is None or is_local(name)):
        raise ValueError(
            f"revision {revision!r} is of a repository on the Hub, which {str(name or BUNDLED_NAME)!r} is "
            "not; leave it out"
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
        return ModelSource(locate_base(settings, own), settings.get("base_revision"), folder)
    if revision is None and name is not None and folder is not None:
        settings = read_settings(folder)
        revision = settings.get("base_revision") if settings["base_model"] == str(name) else None
    return ModelSource(BUNDLED_NAME if name is None else str(name), revision, folder)


def load_base(
    name: str | Path, dtype: torch.dtype | str | None = None, revision: str | None = None
) -> tuple[PreTrainedModel, Any]:
    """Load a base model and its processor from a folder or from one commit on the Hub.

    Args:
        name: a model folder, a Hub name, or "bundled".
        dtype: of the weights; None: as saved.
        revision: branch, tag or commit hash on the Hub; None: the newest.

    Raises:
        ValueError: not found, no connection, an unsupported family, or weights missing, pickled or of other
            shapes.
    """
    if str(name) == BUNDLED_NAME and not BUNDLED_MODEL.is_dir():
        raise ValueError(
            "the bundled model is missing from this installation; reinstall arr-coc or name a model folder"
        )
    source, commit = str(BUNDLED_MODEL) if str(name) == BUNDLED_NAME else str(name), None
    if is_local(source):
        folder = local_path(source)
        check_model_folder(folder)
        source = str(folder)
    else:
        commit = commit_of(source, revision)
        folder = download(source, SMALL_FILES, commit)
        download(source, weight_names(folder), commit)
        check_weights(folder)
    files = vetted(folder)
    if folder != BUNDLED_MODEL:
        _start_trial(folder)
    model, processor = build_model(source, files, dtype), load_processor(source, folder)
    model.config._commit_hash = commit  # read by `base_revision`
    return model.eval(), processor


def load_processor(source: str, folder: Path) -> Any:
    """Load the processor of a vetted folder after a trial, and render its chat template (or ValueError)."""
    if folder != BUNDLED_MODEL:
        try_processor(source, folder)
    with reading(
        f"the processor of {source!r} can't be loaded",
        "save it beside the model with its own save_pretrained",
    ):
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False)
        check_template(processor)
    return processor


def build_model(source: str, files: Vetted, dtype: torch.dtype | str | None = None) -> PreTrainedModel:
    """Build the model of a vetted folder with its weights; transformers itself reads none of its files.

    `source` is the user's name for the model: for messages, and its `name_or_path`.

    Raises:
        ValueError: an unsupported family, invalid settings, or weights that don't fit them.
    """
    kind: Any = files.config.get("model_type")
    check_model_type(kind if isinstance(kind, str) else short(kind))
    again = "save model and config together again with save_pretrained"
    with reading(f"the config.json of {source!r} makes no {short(kind)} model", again):
        config = CONFIG_MAPPING[kind].from_dict(files.config)
        config.name_or_path = source
        made: Any = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)]
        with torch.device("meta"):
            outline = made(copy.deepcopy(config))
        numbers = sum(tensor.numel() for tensor in (*outline.parameters(), *outline.buffers()))
    if numbers > MAX_NUMBERS * files.size:
        raise ValueError(
            f"the config.json of {source!r} makes a model of {numbers / 1e9:.3g} billion numbers, which its "
            f"{files.size / 1e9:.3g} GB of weights can't fill; {again}"
        )
    with reading(f"the weights of {source!r} don't fit its config.json", again):
        state = {key: value for path in files.weights for key, value in load_file(path).items()}
        with _BUILDING:
            loaded: Any = made.from_pretrained(
                None,
                config=config,
                state_dict=state,
                dtype=dtype or "auto",
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, with their names
            )
        model, report = loaded
        model.config.name_or_path = model.name_or_path = source
        model.generation_config = (
            GenerationConfig.from_model_config(files.config)
            if files.generation is None
            else GenerationConfig.from_dict(files.generation)
        )
    if report["missing_keys"] or report["mismatched_keys"]:
        mismatched = sorted(key for key, *_ in report["mismatched_keys"])
        lacking = sorted({*report["missing_keys"]} - {*mismatched}) or mismatched
        raise ValueError(
            f"the weights of {source!r} don't fit its config.json: {len(lacking)} missing or of another "
            f"shape (first: {short(lacking[0])}); {again}"
        )
    return model


def base_revision(model: PreTrainedModel) -> str | None:
    """Return the commit on the Hub that a base model was loaded from; None for a folder, or if unknown."""
    return getattr(model.config, "_commit_hash", None)


def check_model_folder(folder: Path) -> None:
    """Raise a ValueError if a folder isn't a model folder with safetensors."""
    if not folder.is_dir():
        raise ValueError(
            f"model folder {str(folder)!r} doesn't exist; give a folder, a Hub name, or bundled for the "
            "bundled model"
        )
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{str(folder)!r} is not a model folder: it has no config.json; give the folder that "
            "save_pretrained wrote"
        )
    check_weights(folder)


def find_allocator(name: str | Path, revision: str | None = None) -> Path | None:
    """Return the allocator folder of a folder or Hub name; None if it has none (ValueError: no
    connection).
    """
    if is_local(name):
        folder = local_path(name)
    else:  # with config.json, the repository also holds a base model
        folder = download(str(name), (*ALLOCATOR_FILES, "config.json"), revision)
    return folder if (folder / CONFIG_NAME).is_file() else None


def load_layer(folder: Path, model: PreTrainedModel) -> ARRCOCLayer:
    """Load the trained layer for a base model; every weight must be there and fit.

    Raises:
        ValueError: trained for another base model; weights missing, pickled or of other shapes.
    """
    settings = read_settings(folder)
    config = model.config
    dim = config.get_text_config().hidden_size
    if (settings["base_model_type"], settings["base_dim"]) != (config.model_type, dim):
        raise ValueError(
            f"the allocator {str(folder)!r} was saved for {short(settings['base_model'])} "
            f"({short(settings['base_model_type'])}, width {short(settings['base_dim'])}) and doesn't fit "
            f"{config.name_or_path!r} ({config.model_type!r}, width {dim}); load it with its own base model, "
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


# ---- trial --------------------------------------------------------------------------------------------
#
# Patterns and templates of a tokenizer.json, and sizes of an image processor, may need minutes and gigabytes
# or end the process, which the files alone don't show. So a child process (`files.worker`) first does with
# them what the first question does, within bounds of time, memory and output (`store.trial_work`). Files
# that have passed are not tried again.

SECONDS, MEGABYTES, IDLE = 30, 4096, 60  # limits of a step; idle seconds before the child is ended
STEPS = {  # step -> start of its error message, remedy
    "file": (
        "the tokenizer.json of {} can't be loaded",
        "save it again with the tokenizer's save_pretrained",
    ),
    "load": (
        "the processor of {} can't be loaded",
        "save it beside the model with its own save_pretrained",
    ),
    "read": ("the tokenizer of {} can't be used", "save it again with its own save_pretrained"),
    "look": (
        "the image processor of {} can't be used",
        "correct its settings (preprocessor_config.json, processor_config.json, chat_template.jinja)",
    ),
}
MAX_ON_CPU = 1_000_000_000  # parameters of the largest model that is asked a trial question on a CPU
USUAL_SETTINGS = {  # settings that change what a model returns: usual values
    "return_dict": True,
    "return_dict_in_generate": False,
    "use_cache": True,
    "output_attentions": False,
    "output_hidden_states": False,
    "output_scores": False,
    "output_logits": False,
}

_WORKER = Worker(Path(__file__).with_name("trial_work.py"), "try_step", SECONDS, MEGABYTES, IDLE)
_passed: set[bytes] = set()  # digests of the files that passed


def _start_trial(folder: Path) -> None:
    """Let the child begin its imports, if the folder needs a trial, while weights are read."""
    if _digest(folder) not in _passed:
        _WORKER.start()


def try_processor(source: str, folder: Path) -> None:
    """Try the tokenizer and processor of a vetted folder in a child process; a ValueError if they fail."""
    digest = _digest(folder)
    if digest in _passed:
        return
    for step, (what, remedy) in STEPS.items():
        with reading(what.format(repr(source)), remedy):
            _WORKER.ask({"step": step, "folder": str(folder.resolve())})
    _passed.add(digest)


def _digest(folder: Path) -> bytes:
    """Return a digest of the files that tokenizers and processors are made of."""
    digest = hashlib.sha256()
    for path in sorted(small_files(folder)):
        digest.update(f"{path.relative_to(folder)}\n{path.stat().st_size}\n".encode(errors="replace"))
        digest.update(path.read_bytes())
    return digest.digest()


def try_question(model: Any, source: str) -> None:
    """Ask an `ARRCOCModel` about a small picture, for two tokens; a ValueError if it can't answer."""
    device, size = model.device.type, sum(each.numel() for each in model.base.parameters())
    if device == "meta" or (device == "cpu" and size > MAX_ON_CPU):
        return  # no weights, or as slow as the user's own first question
    unusual = "; ".join(
        f"{key} is {short(getattr(config, key))}"
        for config in (model.base.config, model.base.config.get_text_config(), model.base.generation_config)
        for key, usual in USUAL_SETTINGS.items()
        if getattr(config, key, None) not in (None, usual)
    )
    listed = f" ({unusual})" if unusual else ""
    with reading(
        f"{source!r} can't answer a question about a picture",
        f"correct the settings there{listed}, or save it again with save_pretrained",
    ):
        # Mode "full", since a failure in choosing is only a fallback, reported with the user's own answers.
        picture = Image.effect_noise((61, 47), 64).convert("RGB")
        model.session(picture).ask("What is it?", mode="full", max_new_tokens=2)
