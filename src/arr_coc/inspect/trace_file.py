"""Reading of a trace's file, which is untrusted: its size, header and types of fields are checked.

    read_parts(path, TRACE) -> (fields, tensors)      of a `Trace`; of a `ClipTrace` with CLIPS
    file_format(path) -> "arr-coc trace 1"            what a file says it is

What the fields say is checked where they become a `Trace` or a `ClipTrace`. A file of version 0.1.0 has fewer
fields; the others are as `LATER` says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load as from_safetensors

FORMAT, CLIP_FORMAT = "arr-coc trace 1", "arr-coc clip trace 1"
MAX_BYTES, MAX_HEADER = 2**29, 2**24
"""The most bytes of a file, and of its header, that are read."""

_NUMBER, _BUDGET, _TIMES = (int, float), (int, float, str), {str: (int, float)}
_ALLOCATION = {"tensions": {str: _NUMBER}, "budget": _BUDGET, "void": bool}
_GUIDANCE = (
    {
        "confidence": _NUMBER,
        "whole": _NUMBER,
        "odd": _NUMBER,
        "spots": [{"word": str, "term": str, "likeness": _NUMBER, "place": [_NUMBER]}],
    },
    type(None),
)
_REPLY: dict[str, Any] = {
    "question": str,
    "answer": str,
    "mode": str,
    "budget": _BUDGET,
    "kept": int,
    "total": int,
    "read": int,
    "fallback": bool,
    "note": (str, type(None)),
    "ms": _TIMES,
    "model": str,
    "full": ({"text": str, "ms": _TIMES, "again": (_TIMES, type(None))}, type(None)),
    "machine": str,
    "again": (_TIMES, type(None)),
    "true_answers": [str],
}
PLAIN: dict[str, Any] = _REPLY | {
    "channels": [str],
    "words": [{"text": str, "pull": _NUMBER, "scored": bool}],
    "probes": dict,
    "allocation": _ALLOCATION,
    "evidence": [[_NUMBER]],
    "guidance": _GUIDANCE,
}
"""The fields of a trace that are no tensors, and their types in a file (see `fits`)."""
LATER: dict[str, Any] = {"machine": "", "again": None, "true_answers": [], "evidence": [], "guidance": None}
"""What a file has that was written before there were these fields."""
STRIP: dict[str, Any] = {
    "lengths": [int],
    "spans": [[_NUMBER]],
    "cuts": [int],
    "side": [int],
    "allocation": _ALLOCATION,
    "guidance": _GUIDANCE,
}
"""The fields of an image or a clip in the trace of several; `lengths` are the bytes of its pictures."""


class Kind(NamedTuple):
    """A kind of file: its format, the types of its fields, and what fields were added later."""

    format: str
    plain: dict[str, Any]
    later: dict[str, Any]


TRACE = Kind(FORMAT, PLAIN, LATER)
CLIPS = Kind(CLIP_FORMAT, _REPLY | {"strips": [STRIP]}, {})


def file_format(path: Path) -> str | None:
    """What a file says it is, from its header alone; None where that says nothing.

    Raises:
        OSError: the file can't be read.
        ValueError: it has no such header.
    """
    with path.open("rb") as file:
        end = int.from_bytes(file.read(8), "little")
        if end > MAX_HEADER:
            raise ValueError(f"a header of {end:,} bytes; a trace has at most {MAX_HEADER:,}")
        header = json.loads(file.read(end) or b"null")
    about = header.get("__metadata__") if type(header) is dict else None
    return about.get("format") if type(about) is dict else None


def read_parts(path: Path, kind: Kind = TRACE) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a file that are no tensors, their types checked, and its tensors by name.

    Raises:
        OSError: the file can't be read.
        ValueError: it is no trace.
        SafetensorError: it is no safetensors file.
    """
    size = path.stat().st_size
    if not 8 < size <= MAX_BYTES:
        raise ValueError(f"{size:,} bytes; a trace has 9 to {MAX_BYTES:,}")
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    if end > MAX_HEADER:
        raise ValueError(f"a header of {end:,} bytes; a trace has at most {MAX_HEADER:,}")
    tensors = from_safetensors(data)
    about = json.loads(data[8:end]).get("__metadata__", {})
    if about.get("format") != kind.format:
        raise ValueError(f"format {about.get('format')!r}, need {kind.format!r}")
    plain = json.loads(about.get("plain", "null"))
    if type(plain) is dict:
        plain = kind.later | plain
        if type(plain.get("full")) is dict:
            plain["full"] = {"again": None} | plain["full"]
    if not fits(plain, dict) or set(plain) != set(kind.plain):
        raise ValueError(f"it does not have the fields {', '.join(kind.plain)}")
    if wrong := [name for name, one in kind.plain.items() if not fits(plain[name], one)]:
        raise ValueError(f"{', '.join(wrong)}: not of the kind that a trace has there")
    return plain, tensors


def fits(value: Any, kind: Any) -> bool:
    """Whether a JSON value is of a kind: a type; one of a tuple; [of each]; {str: of each}; {name: of it}."""
    if isinstance(kind, tuple):
        return any(fits(value, one) for one in kind)
    if isinstance(kind, list):
        return type(value) is list and all(fits(part, kind[0]) for part in value)
    if not isinstance(kind, dict):
        return type(value) is kind
    if type(value) is not dict or not (str in kind or set(value) == set(kind)):
        return False
    return all(fits(part, kind.get(str, kind.get(name))) for name, part in value.items())
