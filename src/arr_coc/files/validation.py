"""Check JSON and records from files of others; an error is one line that names the file and the remedy."""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

LONGEST = 80  # characters of a value in a message
MAX_NESTED = 64  # levels of nested objects and lists
MAX_RUNS = 32  # training runs in a layer's record

M = TypeVar("M", bound=BaseModel)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a surrogate pair
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = LONGEST - 6

# ---- JSON ---------------------------------------------------------------------------------------------


def parse_json(content: bytes, where: str, remedy: str) -> Any:
    """Parse JSON in UTF-8, with or without a byte order mark, more strictly than `json.loads`.

    `where` (file and line) and `remedy` are for the message.

    Raises:
        ValueError: not UTF-8 or JSON, NaN or Infinity, a repeated name, or nested deeper than `MAX_NESTED`.
    """
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_object, parse_constant=_no_number)
        # Brackets are counted first: visiting every value costs as much as parsing.
        if content.count(b"[") + content.count(b"{") > MAX_NESTED and _deeper(value, MAX_NESTED):
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
    except ValueError as error:  # from the functions below, or a number of thousands of digits
        reason = str(error) if isinstance(error, _Refused) else "a number is too long"
        raise ValueError(f"{where} can't be read ({reason}): {remedy}") from error
    return value


class _Refused(ValueError):
    """Raised for JSON that `json.loads` would accept and this package doesn't."""


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
    """Return whether objects and lists are nested deeper than so many levels."""
    if not isinstance(value, (dict, list)):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(each, levels - 1) for each in inside)


def validated(model: type[M], value: Any, where: str) -> M:
    """Return parsed JSON as an instance of a pydantic model; `where` (file and line) is for the message.

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
    if first["type"] == "extra_forbidden":
        reason = "it is unknown: leave it out"
    if first["type"] == "model_type":  # pydantic's message names the Python class
        reason = "it should be an object"
    reason = re.sub(
        "^(Input|String|List|Dictionary|Tuple) should", "it should", reason.removeprefix("Value error, ")
    ).replace("a valid tuple", "a valid list")  # as JSON calls it
    if not first["loc"]:
        raise ValueError(f"{where}: {reason}")
    raise ValueError(f"{where}: {field} is {text}: {reason}")


def short(value: Any) -> str:
    """Return the `repr` of a value, cut to at most `LONGEST` characters."""
    text = _REPR.repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]}..."


def bare(text: str) -> str:
    """Return a simple name, such as n161313.jpg, unchanged; any other text quoted and cut as by `short`."""
    return text if re.fullmatch(r"[\w./-]{1,80}", text) else short(text)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint such as "; did you mean 'random'?", or "" if none of `names` is close."""
    by_folded = {each.casefold(): each for each in names}
    close = difflib.get_close_matches(name[:LONGEST].casefold(), by_folded, n=1)
    return f"; did you mean {by_folded[close[0]]!r}?" if close else ""


# ---- what a layer was trained on ----------------------------------------------------------------------
#
# One record per training run, saved with the weights: names (recipe, teacher, data, base model), whole
# numbers, and `images`, at most how many different ones of each kind of data. Records of others go into model
# cards, so names are short, plain, and no paths.

NAMES, NUMBERS = ("recipe", "target", "eyes", "base"), ("steps", "seed")
_NAME = re.compile(r"\w[\w ./-]{0,99}")


def check_records(records: Any) -> tuple[dict[str, Any], ...]:
    """Return records of training runs (`trained_on`), without unknown fields; ValueError if invalid."""
    if not isinstance(records, list | tuple) or len(records) > MAX_RUNS:
        raise ValueError(f"trained_on is no list of at most {MAX_RUNS} runs: leave it out")
    return tuple(_check(record) for record in records)


def record_name(text: str) -> str:
    """Return a text changed into a valid name for a record."""
    return re.sub(r"[^\w ./-]", "-", text)[:100].lstrip("./ -") or "unnamed"


def _check(record: Any) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise ValueError(f"trained_on has {repr(record)[:80]}, which is no record of a run: leave it out")
    images = record.get("images", {})
    for name, value, fits in (
        *((name, record[name], _is_name(record[name])) for name in NAMES if name in record),
        *((name, record[name], _is_number(record[name])) for name in NUMBERS if name in record),
        ("images", images, isinstance(images, dict) and len(images) <= MAX_RUNS),
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
