"""What a layer was trained on, as it is saved beside its weights: a record for each run, from the first on.

    recipe, target, eyes, base    names: of the recipe, of what taught, of what it read, of the base model
    images                        kind of data ("world", "folder", ...) -> how many different ones, at most
    steps, seed                   whole numbers

No record holds a path. They come from files of others and go into model cards, so names are short and plain.
"""

from __future__ import annotations

import re
from typing import Any

MOST = 32
"""The most runs of one layer."""
NAMES, NUMBERS = ("recipe", "target", "eyes", "base"), ("steps", "seed")
_NAME = re.compile(r"\w[\w ./-]{0,99}")


def check_records(records: Any) -> tuple[dict[str, Any], ...]:
    """The records of a file; fields that this version doesn't know are left out.

    Raises:
        ValueError: they aren't such records.
    """
    if not isinstance(records, list | tuple) or len(records) > MOST:
        raise ValueError(f"trained_on is no list of at most {MOST} runs: leave it out")
    return tuple(_check(record) for record in records)


def plain(text: str) -> str:
    """A text as a name that a record may hold."""
    return re.sub(r"[^\w ./-]", "-", text)[:100].lstrip("./ -") or "unnamed"


def _check(record: Any) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise ValueError(f"trained_on has {repr(record)[:80]}, which is no record of a run: leave it out")
    images = record.get("images", {})
    for name, value, fits in (
        *((name, record[name], _is_name(record[name])) for name in NAMES if name in record),
        *((name, record[name], _is_number(record[name])) for name in NUMBERS if name in record),
        ("images", images, isinstance(images, dict) and len(images) <= MOST),
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
