"""Reading of objects from files that may come from anywhere: JSON, pydantic models, errors of one line.

record = parse_json(line, "questions.jsonl, line 3", "correct the line")
question = validated(Question, record, "questions.jsonl, line 3")
ValueError: questions.jsonl, line 3: 'answer' is True: it should be a text or a list of texts
"""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

LONGEST = 80
"""The most characters of a value that a message shows."""
DEEPEST = 64
"""The most levels that objects and lists may lie inside of one another."""
M = TypeVar("M", bound=BaseModel)

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a character that JSON writes in two; only with its other half is it a text."""
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = LONGEST - 6


def parse_json(content: bytes, where: str, remedy: str) -> Any:
    """A JSON text, read more strictly than `json.loads` does.

    Args:
        content: UTF-8, with or without a byte order mark.
        where: the file and, where there is one, the line, for the message.
        remedy: what to do about a bad text.

    Raises:
        ValueError: it is not UTF-8 or not JSON (NaN and Infinity are not), an object has a name twice, or it
            is nested deeper than `DEEPEST`.
    """
    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_object, parse_constant=_no_number)
        # Brackets are counted first: to go through every value costs as much as to parse them.
        if content.count(b"[") + content.count(b"{") > DEEPEST and _deeper(value, DEEPEST):
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
    """An object of a file as an instance of a pydantic model.

    Args:
        model: class of the instance.
        value: parsed JSON.
        where: file and line of the object, for the message.

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
    """A hint at the one of `names` that may have been meant, such as "; did you mean 'random'?", or "".

    Upper and lower case count alike.
    """
    by_folded = {each.casefold(): each for each in names}
    close = difflib.get_close_matches(name[:LONGEST].casefold(), by_folded, n=1)
    return f"; did you mean {by_folded[close[0]]!r}?" if close else ""
