"""Check a model folder, which may come from anybody, before anything is loaded from it.

The checks cover what transformers, up to the release READ, can be made to do by files. Tokenizers, processors
and chat templates can't be judged by their files: `store.checkpoint` and `seam` try them in a child process.
"""

from __future__ import annotations

import importlib.util
import json
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open
from transformers import GenerationConfig, PreTrainedConfig

from arr_coc.files.saved import PICKLES, reading
from arr_coc.files.validation import short

READ = "5.24"  # the newest release of transformers whose code was read for these checks

CONFIG = "config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SMALL_FILES = ("*.json", "*.jinja", "*.txt", "*.model")  # beside weights: settings, templates, vocabularies
PROCESSOR_FILES = (
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "tokenizer_config.json",
)
OTHER_SETTINGS = ("special_tokens_map.json", "added_tokens.json", "chat_template.json")
TEMPLATES = "additional_chat_templates"  # the folder of further chat templates in a model folder
SHARD = re.compile(r"[\w-][\w.-]{0,200}\.safetensors")  # a weights file: no folder, no special name

# Of config.json.
FOREIGN = (  # settings that name files or code other than transformers' own
    "configuration_files",
    "transformers_weights",
    "quantization_config",
    "fusion_config",
    "distributed_config",
    "kernel_config",
)
IMPLEMENTATIONS = ("eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")  # transformers' own
# Attention in packages; without the package, transformers would fetch kernels from the Hub.
FLASH = re.compile(r"flash_attention_[234]")
LAYERS = re.compile(r"depth|n_layers?|(num|n)_(\w+_)?(layers|blocks)")
LOOPS = re.compile(r"\w*_(loops|passes)")  # how often layers run, one after another
COUNTED = re.compile(r"num_\w*|n_\w*(experts|heads|groups?)|\w+_n_heads")
# px to which an encoder enlarges or pads every picture
PADDED, MAX_PADDED = re.compile(r"\w*pinpoints|window_size"), 2**13

# Of processors and tokenizers.
CLASSES = re.compile(r"\w*(Processor|Tokenizer|Backend|FeatureExtractor)(Fast|Pil)?")
CLASS_KEYS = re.compile(r"(processor|tokenizer|\w+_processor|feature_extractor)_(class|type)")
MAX_PIXELS = (  # settings of a processor: the largest allowed number
    (PADDED, MAX_PADDED),
    (re.compile(r"(max_)?(height|width)|max_(num_)?(patches|tiles|crops)"), 2**14),
    (re.compile(r"min_pixels|shortest_edge"), 2**22),  # px to which small pictures are enlarged
    (re.compile(r"\w+_edge|max_pixels"), 2**28),
    (re.compile(r"\w*(patch|merge|kernel|window)_size"), 2**10),
)

# Of generation_config.json.
BEAMS = re.compile(r"num_beams|num_beam_groups|num_return_sequences")
LENGTHS = re.compile(r"(min|max)_(new_tokens|length)")
NUMBERS = re.compile(r"temperature|guidance_scale|top_p|min_p|typical_p|\w+_cutoff|\w+_penalty")
FLAGS = re.compile(r"do_sample|use_cache|return_dict_in_generate|early_stopping|output_\w+")
COUNTS = re.compile(r"top_k|no_repeat_ngram_size|num_\w+|(min|max)_(new_tokens|length)")
IDS = re.compile(r"(bos|eos|pad|decoder_start|forced_[be]os)_token_id")

MAX_SETTINGS_BYTES, MAX_DEPTH = 8_000_000, 20  # of a settings file
MAX_FILE_BYTES = 200_000_000  # of any file but those of weights; tokenizers have up to 40 MB
MAX_TENSORS, MAX_LAYERS = 200_000, 1000
MAX_LOOPS = 64
USUAL_COUNT = 4096  # allowed for a number of heads or the like, else the longest side of a weight
MAX_LENGTH, MAX_BEAMS = 2**21, 64
MAX_ENTRIES, MAX_TOKEN_ENTRIES = 4096, 32_768  # most entries of a list of settings, of tokens


class Vetted(NamedTuple):
    """What may be loaded from a model folder that passed the checks."""

    config: dict[str, Any]  # of config.json, without unused settings
    generation: dict[str, Any] | None  # of generation_config.json, if it exists
    weights: tuple[Path, ...]  # safetensors files
    size: int  # bytes of the weights


class WeightHeaders(NamedTuple):
    """Number of tensors, total bytes and longest side, as the headers of safetensors files say."""

    tensors: int
    size: int
    longest: int


def vetted(folder: Path) -> Vetted:
    """Check a model folder that has a config.json; return what may be loaded from it.

    Raises:
        ValueError: a file is damaged, can't be bounded, or would load more than the folder's own safetensors.
    """
    for path in folder.glob("*.safetensors"):
        check_file(path, folder)
    for path in small_files(folder):
        check_file(path, folder)
        if path.stat().st_size > MAX_FILE_BYTES:
            _refuse(path, f"it is larger than {MAX_FILE_BYTES / 1e6:g} MB", "copy it again")
    weights = tuple(folder / name for name in weight_names(folder))
    header = _headers(weights)
    settings = read_object(folder / CONFIG)
    config = _config(settings, folder / CONFIG, header)
    path = folder / "generation_config.json"
    generation = _plain(read_object(path), GenerationConfig) if path.exists() else None
    _check_lists(folder / CONFIG, settings)
    if generation is not None:
        _check_generation(path, generation)
    for name in (*PROCESSOR_FILES, *OTHER_SETTINGS):
        if (folder / name).exists():
            _check_processor(folder / name)
    if (folder / "audio_tokenizer_config.json").exists():
        _refuse(folder / "audio_tokenizer_config.json", "it names a model elsewhere", "remove it")
    return Vetted(config, generation, weights, header.size)


def weight_names(folder: Path) -> list[str]:
    """Return the names of a model folder's weight files, which need not exist yet.

    Raises:
        ValueError: an index is unreadable, or names a pickle or a file elsewhere.
    """
    # transformers opens whatever an index names, pickles and files elsewhere too, and may take any of the
    # indices: all are read.
    named: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.index.json")):
        listed: Any = read_object(path).get("weight_map")
        if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
            _refuse(path, "its weight_map is no table of files", "save the model again with save_pretrained")
        named[path.name] = sorted(set(listed.values()))
        for name in named[path.name]:
            if not SHARD.fullmatch(name):
                _refuse(
                    path,
                    f"it names {short(name)}, and weights are *.safetensors of the same folder alone "
                    "(pickles can run code)",
                    "save the model again with save_pretrained of transformers",
                )
    if (folder / WEIGHTS).exists() or INDEX not in named:
        return [WEIGHTS]
    return named[INDEX]


def check_weights(folder: Path) -> None:
    """Raise a ValueError if the weights of a local folder are missing or pickled."""
    lacking = next((name for name in weight_names(folder) if not (folder / name).exists()), None)
    if lacking is None:
        return
    pickles = [file.name for pattern in PICKLES for file in folder.glob(pattern)]
    if pickles and not any(folder.glob("*.safetensors")):
        raise ValueError(
            f"{str(folder)!r} has only pickled weights ({pickles[0]}), which can run code and are never "
            "loaded; convert them to safetensors (save_pretrained of transformers writes them)"
        )
    raise ValueError(
        f"{str(folder)!r} has no weights (*.safetensors): {lacking} is missing; copy it there or save the "
        "model again"
    )


def read_object(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; raise ValueError if it is no object, too large or nested too deep."""
    again = "copy it again, or save it again with save_pretrained"
    with reading(f"{str(path)!r} can't be read", again):
        if not path.is_file():
            raise ValueError("it is no ordinary file")
        if path.stat().st_size > MAX_SETTINGS_BYTES:
            raise ValueError(f"it is larger than {MAX_SETTINGS_BYTES / 1e6:g} MB")
        value = json.loads(path.read_text(encoding="utf-8"))
        if _depth(value) > MAX_DEPTH:
            raise ValueError(f"it holds more than {MAX_DEPTH} objects within each other")
    if not isinstance(value, dict):
        _refuse(path, f"it holds {short(value)} and no object", again)
    return value


def _refuse(path: Path, reason: str, remedy: str) -> None:
    raise ValueError(f"{str(path)!r} is not loaded: {reason}; {remedy}")


def _depth(value: Any) -> int:
    """Return how deep objects and lists of parsed JSON are nested."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key and value of an object and of the objects inside it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from _settings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _settings(inner)


def _bound(path: Path, key: str, value: Any, names: re.Pattern[str], most: int) -> None:
    """Refuse a number above `most`, or a list with one, if the setting's name matches `names`."""
    if isinstance(value, list):
        for each in value:
            _bound(path, key, each, names, most)
    elif names.fullmatch(key) and isinstance(value, int | float) and not value <= most:
        _refuse(path, f"{key} is {short(value)}, more than {most}", "correct it")


def _check_lists(path: Path, settings: Any, most: int = MAX_ENTRIES) -> None:
    """Refuse overlong lists: for some settings each entry becomes a module."""
    for key, value in _settings(settings):
        if isinstance(value, list) and len(value) > most:
            _refuse(path, f"{key} has {len(value)} entries, more than {most}", "correct it")


# ---- files --------------------------------------------------------------------------------------------


def small_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that transformers might read, except weights."""
    for pattern in (*SMALL_FILES, f"{TEMPLATES}/*"):
        yield from folder.glob(pattern)


def check_file(path: Path, folder: Path) -> None:
    """Raise a ValueError for folders, pipes and other special files, and for links that leave the folder."""
    root = folder.resolve()
    roots = [root]
    # In the Hub's cache, files are links within the cache.
    if root.parent.name == "snapshots" and root.parents[1].name.startswith("models--"):
        roots += [root.parents[1] / "blobs", root.parents[2] / "blobs"]
    copy = "copy the file itself there"
    with reading(f"{str(path)!r} can't be read", copy):  # circular links
        place = path.resolve(strict=True)
        ordinary = stat.S_ISREG(place.stat().st_mode)
    if not ordinary:
        _refuse(path, "it is no ordinary file", copy)
    if not any(place.is_relative_to(root) for root in roots):
        _refuse(path, "it is a link to a file outside of the folder", copy)


def _headers(paths: tuple[Path, ...]) -> WeightHeaders:
    """Read the headers of weight files; safetensors checks them against the files."""
    tensors = size = longest = 0
    for path in paths:
        with reading(
            f"{str(path)!r} can't be read",
            "copy it again, or save the model again with save_pretrained",
        ):
            with safe_open(path, framework="pt") as file:
                shapes = [file.get_slice(name).get_shape() for name in file.keys()]
            size += path.stat().st_size
        tensors += len(shapes)
        longest = max([longest, *(max(shape, default=0) for shape in shapes if 0 not in shape)])
        if tensors > MAX_TENSORS:
            _refuse(path, f"there are more than {MAX_TENSORS} tensors", "name another model")
    return WeightHeaders(tensors, size, longest)


# ---- settings -----------------------------------------------------------------------------------------


def _config(settings: Mapping[str, Any], path: Path, header: WeightHeaders) -> dict[str, Any]:
    """Return the settings of a config.json, or of a part of it, without unused ones."""
    kept: dict[str, Any] = {}
    for key, value in _plain(settings, PreTrainedConfig).items():
        if "implementation" in key and key.removesuffix("_autoset") == key:
            _check_implementation(path, key, value)
            value = None if _is_missing_package(value) else value  # it would fetch kernels from the Hub
        elif key in FOREIGN and value:
            _refuse(
                path,
                f"it has {key}, which chooses other files or code",
                "load such a model with transformers yourself, and give it to ARRCOCModel.wrap",
            )
        elif PADDED.fullmatch(key):
            _bound(path, key, value, PADDED, MAX_PADDED)
        elif key == "auto_map" or key.startswith("_"):
            # Ordinary checkpoints name their repository's code in `auto_map` beside a class of transformers;
            # that is accepted, since nothing is loaded with `trust_remote_code`.
            continue
        # Modules are built before weights are compared with them, so numbers must fit the weights.
        elif LAYERS.fullmatch(key):
            _bound(path, key, value, LAYERS, min(MAX_LAYERS, header.tensors))
        elif LOOPS.fullmatch(key):
            _bound(path, key, value, LOOPS, MAX_LOOPS)
        elif COUNTED.fullmatch(key):
            _bound(path, key, value, COUNTED, max(USUAL_COUNT, header.longest))
        kept[key] = _config(value, path, header) if isinstance(value, dict) else value
    return kept


def _plain(settings: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Return settings without those that would shadow a method of the object they are set on."""
    return {key: value for key, value in settings.items() if not callable(getattr(kind, key, None))}


def _check_implementation(path: Path, key: str, value: Any) -> None:
    """Refuse implementations other than transformers' own: USER/NAME would be a repository of kernels."""
    for name in value.values() if isinstance(value, dict) else [value]:
        if name is None or (isinstance(name, str) and (name in IMPLEMENTATIONS or FLASH.fullmatch(name))):
            continue
        _refuse(
            path,
            f"{key} is {short(name)}, which is none of {', '.join(IMPLEMENTATIONS)}, flash_attention_2",
            "take it out: code of a repository is never run",
        )


def _is_missing_package(name: Any) -> bool:
    """Return whether an implementation's package isn't installed."""
    return (
        isinstance(name, str) and bool(FLASH.fullmatch(name)) and not importlib.util.find_spec("flash_attn")
    )


def _check_generation(path: Path, settings: dict[str, Any]) -> None:
    """Check the types and ranges of the settings in a generation_config.json."""
    _check_lists(path, settings)
    for key, value in settings.items():
        _bound(path, key, value, BEAMS, MAX_BEAMS)
        _bound(path, key, value, LENGTHS, MAX_LENGTH)
        if value is not None and not _is_of_its_kind(key, value):
            _refuse(
                path, f"{key} is {short(value)}, which no generation can use", "correct it, or take it out"
            )
    if settings.get("do_sample") and settings.get("temperature") == 0:
        _refuse(path, "do_sample is true and temperature 0", "take do_sample out, or correct the temperature")


def _is_of_its_kind(key: str, value: Any) -> bool:
    """Return whether a generation setting has its type; unknown names may have any."""
    if FLAGS.fullmatch(key):
        return isinstance(value, bool) or (key == "early_stopping" and value == "never")
    if IDS.fullmatch(key):
        ids = value if isinstance(value, list) else [value]
        return all(type(each) is int and abs(each) < 2**31 for each in ids)
    if COUNTS.fullmatch(key):
        return type(value) is int and value >= 0
    return not NUMBERS.fullmatch(key) or (type(value) in (int, float) and 0 <= value < 1e6)


def _check_processor(path: Path) -> None:
    """Check the settings file of a tokenizer, an image processor or a processor."""
    settings = read_object(path)
    _check_lists(path, settings, MAX_ENTRIES if "processor" in path.name else MAX_TOKEN_ENTRIES)
    for key, value in _settings(settings):
        if key == "audio_tokenizer" and value:
            _refuse(path, "audio_tokenizer names a model elsewhere", "take it out")
        for names, most in MAX_PIXELS:
            _bound(path, key, value, names, most)
        if CLASS_KEYS.fullmatch(key):
            for name in value if isinstance(value, list) else [value]:
                if name is not None and not (isinstance(name, str) and CLASSES.fullmatch(name)):
                    _refuse(
                        path, f"{key} is {short(value)}, which is no processor or tokenizer", "correct it"
                    )
        if key == "fast_tokenizer_files" or (key.endswith("_file") and key != "special_tokens_map_file"):
            for name in value if isinstance(value, list) else [value]:
                if isinstance(name, str) and _is_elsewhere(name, path.parent):
                    _refuse(path, f"{key} names {short(name)}, which is outside of the folder", "take it out")


def _is_elsewhere(name: str, folder: Path) -> bool:
    """Return whether a file of this name exists outside of the folder."""
    try:
        places = [place.resolve() for place in (Path(name), folder / name) if place.exists()]
    except (OSError, ValueError):  # no valid file name
        return True
    return any(not place.is_relative_to(folder.resolve()) for place in places)
