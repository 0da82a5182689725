"""Reading and writing of JSON and safetensors files that may come from anybody; pickles are never read.

    record = parse_json(line, "questions.jsonl, line 3", "correct the line")
    question = validated(Question, record, "questions.jsonl, line 3")
    ValueError: questions.jsonl, line 3: 'answer' is True: it should be a text or a list of texts

What can't be read is a ValueError of one line that names the file and the remedy.
"""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ValidationError
from safetensors.torch import save
from torch import Tensor

from arr_coc.files.atomic import one_line, write_atomic
from arr_coc.files.paths import CONFIG_NAME

BUNDLED = Path(__file__).parents[1] / "bundled"
"""The folder with the model, the allocator and the sample inside the package."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
"""Files of weights that can run code, which are never loaded."""
MOST_BYTES = 1_000_000  # the most bytes of a file with settings
LONGEST = 80  # the most characters of a value that a message shows
MOST_NESTED = 64  # the most levels that objects and lists of a JSON file may lie inside of one another
MOST_RUNS = 32  # the most training runs that a layer's record holds

M = TypeVar("M", bound=BaseModel)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a character that JSON writes in two; only with its other half is it a text."""
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = LONGEST - 6

# ---- JSON ---------------------------------------------------------------------------------------------


def parse_json(content: bytes, where: str, remedy: str) -> Any:
    """A JSON text of UTF-8, with or without a byte order mark, read more strictly than `json.loads` does.

    `where` (the file, and the line if there is one) and `remedy` are for the message.

    Raises:
        ValueError: it is not UTF-8 or not JSON (NaN and Infinity are not), an object has a name twice, or it
            is nested deeper than `MOST_NESTED`.
    """
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_object, parse_constant=_no_number)
        # Brackets are counted first: to go through every value costs as much as to parse them.
        if content.count(b"[") + content.count(b"{") > MOST_NESTED and _deeper(value, MOST_NESTED):
            raise RecursionError
        if _HALF.search(content):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} is not JSON (half of a character): {remedy}") from error
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        place = f"{line}column {error.colno}"
        raise ValueError(f"{where}: {place} is not JSON ({error.msg}): {remedy}") from error
    except RecursionError as error:
        raise ValueError(f"{where} can't be read (nested too deep): {remedy}") from error
    except ValueError as error:  # of the functions below, or a number of thousands of digits
        reason = str(error) if isinstance(error, _Refused) else "a number is too long"
        raise ValueError(f"{where} can't be read ({reason}): {remedy}") from error
    return value


class _Refused(ValueError):
    """What `json.loads` would let through."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"{short(twice)} comes twice")
    return fields


def _no_number(text: str) -> float:
    raise _Refused(f"{text} is no number of JSON")


def _deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists lie deeper than so many levels."""
    if not isinstance(value, (dict, list)):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(each, levels - 1) for each in inside)


def validated(model: type[M], value: Any, where: str) -> M:
    """Parsed JSON as an instance of a pydantic model; `where` is its file and line, for the message.

    Raises:
        ValueError: names the first invalid field, its value and what it should be.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name, *deeper = first["loc"] or ("",)
    field = short(name) + "".join(f"[{short(step)}]" for step in deeper)
    text, reason = short(first["input"]), first["msg"]
    if first["type"] == "missing":
        raise ValueError(f"{where}: {field} is missing" + (f" in {text}" if deeper else ": add it"))
    if first["type"] == "model_type":  # its own message names the Python class
        reason = "it should be an object"
    reason = re.sub(
        "^(Input|String|List|Dictionary|Tuple) should", "it should", reason.removeprefix("Value error, ")
    )
    if not first["loc"]:
        raise ValueError(f"{where}: {reason}")
    raise ValueError(f"{where}: {field} is {text}: {reason}")


def short(value: Any) -> str:
    """The `repr` of a value, cut to `LONGEST` characters; what can't be printed is escaped."""
    text = _REPR.repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]}..."


def bare(text: str) -> str:
    """A name as it is where it is a plain one, such as n161313.jpg; else as `short` shows it."""
    return text if re.fullmatch(r"[\w./-]{1,80}", text) else short(text)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint at the one of `names` that may have been meant, such as "; did you mean 'random'?", or ""."""
    by_folded = {each.casefold(): each for each in names}
    close = difflib.get_close_matches(name[:LONGEST].casefold(), by_folded, n=1)
    return f"; did you mean {by_folded[close[0]]!r}?" if close else ""


# ---- tensors, folders and settings ---------------------------------------------------------------------


@contextmanager
def reading(what: str, remedy: str) -> Generator[None, None, None]:
    """Turn whatever a parser of a file raises inside the block into "WHAT (the error's message); REMEDY".

    Raises:
        ValueError: any error was raised but lack of memory, which is no fault of a file.
    """
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except BaseException as error:
        # A damaged file can make a library of Rust panic, and that is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{what} ({one_line(error, 200)}); {remedy}") from error


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors of any device and layout as one safetensors file, completely or not at all.

    `metadata` are texts to keep in the file's header.

    Raises:
        OSError: as of `write_atomic`.
        RuntimeError: two tensors share memory.
    """
    # Not safetensors' `save_file`: what that writes can be read by nobody but the owner.
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomic(save(plain, metadata=metadata), path)


def check_finite(weights: Mapping[str, Tensor]) -> None:
    """Raise a ValueError that names the first of some weights that has a NaN or an infinite number."""
    for name, weight in weights.items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise ValueError(f"{name} has values that aren't finite")


def make_folder(folder: Path) -> Path:
    """Make a folder and those above it, unless they exist; a ValueError if it can't be made, or is a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # FileExistsError and NotADirectoryError where a file has the name
        reason = error.strerror or type(error).__name__
        raise ValueError(f"{str(folder)!r} can't be made a folder ({reason}); name another one") from error
    return folder


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of an allocator folder; a ValueError if there are none, or no valid ones."""
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


# ---- what a layer was trained on ----------------------------------------------------------------------
#
# A record for each training run, saved beside the weights: names (of the recipe, of what taught, of what it
# read, of the base model), whole numbers, and `images`, how many different ones of each kind of data at most.
# Records come from files of others and go into model cards, so names are short and plain, and none is a path.

NAMES, NUMBERS = ("recipe", "target", "eyes", "base"), ("steps", "seed")
_NAME = re.compile(r"\w[\w ./-]{0,99}")


def check_records(records: Any) -> tuple[dict[str, Any], ...]:
    """The records of a file, without fields that this version doesn't know.

    Raises:
        ValueError: they aren't such records.
    """
    if not isinstance(records, list | tuple) or len(records) > MOST_RUNS:
        raise ValueError(f"trained_on is no list of at most {MOST_RUNS} runs: leave it out")
    return tuple(_check(record) for record in records)


def record_name(text: str) -> str:
    """A text as a name that a record may hold."""
    return re.sub(r"[^\w ./-]", "-", text)[:100].lstrip("./ -") or "unnamed"


def _check(record: Any) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise ValueError(f"trained_on has {repr(record)[:80]}, which is no record of a run: leave it out")
    images = record.get("images", {})
    for name, value, fits in (
        *((name, record[name], _is_name(record[name])) for name in NAMES if name in record),
        *((name, record[name], _is_number(record[name])) for name in NUMBERS if name in record),
        ("images", images, isinstance(images, dict) and len(images) <= MOST_RUNS),
    ):
        if not fits:
            raise ValueError(f"{name} of trained_on is {repr(value)[:80]}: leave it out")
    for kind, count in images.items():
        if not (_is_name(kind) and _is_number(count)):
            raise ValueError(f"images of trained_on has {repr({kind: count})[:80]}: leave it out")
    return {name: record[name] for name in (*NAMES, "images", *NUMBERS) if name in record}


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
