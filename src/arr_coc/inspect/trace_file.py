"""Reading of a trace's file, which is untrusted: its size, header and types of fields are checked.

    read_parts(path) -> (fields, tensors)

What the fields say is checked where they become a `Trace`. A file of version 0.1.0 has fewer fields; the
others are as `LATER` says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load as from_safetensors

FORMAT = "arr-coc trace 1"
MAX_BYTES, MAX_HEADER = 2**29, 2**24
"""The most bytes of a file, and of its header, that are read."""

_NUMBER, _BUDGET, _TIMES = (int, float), (int, float, str), {str: (int, float)}
PLAIN: dict[str, Any] = {
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
    "channels": [str],
    "words": [{"text": str, "pull": _NUMBER, "scored": bool}],
    "probes": dict,
    "allocation": {"tensions": {str: _NUMBER}, "budget": _BUDGET, "void": bool},
    "machine": str,
    "again": (_TIMES, type(None)),
    "true_answers": [str],
    "evidence": [[_NUMBER]],
    "guidance": (
        {
            "confidence": _NUMBER,
            "whole": _NUMBER,
            "odd": _NUMBER,
            "spots": [{"word": str, "term": str, "likeness": _NUMBER, "place": [_NUMBER]}],
        },
        type(None),
    ),
}
"""The fields that are no tensors, and their types in a file (see `fits`)."""
LATER: dict[str, Any] = {"machine": "", "again": None, "true_answers": [], "evidence": [], "guidance": None}
"""What a file has that was written before there were these fields."""


def read_parts(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
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
    if about.get("format") != FORMAT:
        raise ValueError(f"format {about.get('format')!r}, need {FORMAT!r}")
    plain = json.loads(about.get("plain", "null"))
    if type(plain) is dict:
        plain = LATER | plain
        if type(plain.get("full")) is dict:
            plain["full"] = {"again": None} | plain["full"]
    if not fits(plain, dict) or set(plain) != set(PLAIN):
        raise ValueError(f"it does not have the fields {', '.join(PLAIN)}")
    if wrong := [name for name, kind in PLAIN.items() if not fits(plain[name], kind)]:
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
