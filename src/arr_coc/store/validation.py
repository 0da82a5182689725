"""Validation of objects from files by pydantic models, with errors of one line.

question = validated(Question, record, "questions.jsonl, line 3")
ValueError: questions.jsonl, line 3: 'answer' is True: it should be a text or a list of texts
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

LONGEST = 80
"""The most characters of a value that a message shows."""
M = TypeVar("M", bound=BaseModel)


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
    field = f"{name!r}" + "".join(f"[{step!r}]" for step in deeper)
    text, reason = short(first["input"]), first["msg"]
    if first["type"] == "missing":
        raise ValueError(f"{where}: {field} is missing" + (f" in {text}" if deeper else ": add it"))
    reason = re.sub(
        "^(Input|String|List|Dictionary) should", "it should", reason.removeprefix("Value error, ")
    )
    if not first["loc"]:
        raise ValueError(f"{where}: {reason}")
    raise ValueError(f"{where}: {field} is {text}: {reason}")


def short(value: Any) -> str:
    """The `repr` of a value, cut to `LONGEST` characters."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]}..."
