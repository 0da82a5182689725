"""Reading of a trace's file, which is untrusted: its size, header and types of fields are checked.

    read_parts(path, TRACE) -> (fields, tensors)      of a `Trace`; of a `ClipTrace` with CLIPS
    check_probes(probes, cells)                       those that a viewer draws
    file_format(path) -> "arr-coc trace 1"            what a file says it is

What the fields say is checked where they become a `Trace` or a `ClipTrace`. A file of version 0.1.0 has fewer
fields; the others are as `LATER` says.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load as from_safetensors

FORMAT, CLIP_FORMAT = "arr-coc trace 1", "arr-coc clip trace 1"
MAX_BYTES, MAX_HEADER = 2**29, 2**24
"""The most bytes of a file, and of its header, that are read."""
MOST_LETTERS, MOST_ENTRIES, LARGEST = 100_000, 100_000, 2**53
"""Of a text of a field; of a list or an object; a number, whole or not."""

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


_MAYBE, _LOG, _SAME = (bool, type(None)), [_NUMBER], {"right": str, "note": (str, type(None))}
_POINT = {"kept": int, "logprob": _NUMBER}, {"answer": str, "right": bool, "true": _MAYBE}
_ROW = (
    {
        "method": str,
        "kind": str,
        "tokens": _NUMBER,
        "answer": str,
        "right": bool,
        "logprob": (*_NUMBER, type(None)),
        "keep": ([int], type(None)),
    },
    {"note": (str, type(None)), "true": _MAYBE},
)
_REFERENCE = _SAME | {"right_from": str, "true_answers": [str]}
PROBES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sweep": ({"points": list, "smallest": (int, type(None))}, _REFERENCE | {"order": str}),
    "contenders": ({"budget": int, "rows": list}, _REFERENCE | {"left_out": {str: str}}),
    "faithfulness": (
        {"share": _LOG, "deletion": _LOG, "insertion": _LOG, "random": [_LOG], "auc": {str: _NUMBER}},
        _SAME | {"right_from": str, "random_deletion": [_LOG]},
    ),
}
"""Of a probe that a viewer draws: the fields that it needs, and those that it may have."""


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
    _check_amounts(plain)
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


def check_probes(probes: dict[str, Any], cells: int) -> None:
    """Check the results of probes that a viewer draws; those of other names may be anything.

    Args:
        probes: results of `evaluate.probes` by name, of this version or an earlier one.
        cells: of the image.

    Raises:
        ValueError: a field is missing, of another kind, or doesn't fit the image or the others.
    """
    for name, (needed, more) in PROBES.items():
        probe = probes.get(name)
        if probe is None:
            continue
        if not _has(probe, needed, more) or probe.get("right_from", "given") not in ("all tokens", "given"):
            raise ValueError(f"probe {name!r} is not of the kind that a trace has there")
        if name == "sweep":
            points = probe["points"]
            counts = [point["kept"] if _has(point, *_POINT) else 0 for point in points]
            counts += [] if probe["smallest"] is None else [probe["smallest"]]
            holds = all(0 < count <= cells for count in counts)
        elif name == "contenders":
            holds = probe["budget"] > 0 and all(_is_row(row, cells) for row in probe["rows"])
        else:
            curves = [probe[part] for part in ("share", "deletion", "insertion", "random")]
            curves += [probe["random_deletion"]] if "random_deletion" in probe else []
            holds = len(curves[0]) > 0 and len(set(map(len, curves))) == 1
            holds &= all(0 <= share <= 1 for share in curves[0])
            holds &= all(len(draws) > 0 for random in curves[3:] for draws in random)
        if not holds:
            raise ValueError(f"probe {name!r} does not fit an image of {cells} cells")


def _has(value: Any, needed: dict[str, Any], more: dict[str, Any]) -> bool:
    """Whether a JSON value has the fields that it needs, and those and others of their kinds."""
    if type(value) is not dict or not set(needed) <= set(value):
        return False
    return all(fits(value[name], kind) for name, kind in (needed | more).items() if name in value)


def _is_row(row: Any, cells: int) -> bool:
    """Whether a JSON value is a row of the probe of contenders."""
    if not _has(row, *_ROW) or row["kind"] not in ("ours", "null", "rival") or row["tokens"] < 0:
        return False
    keep = row["keep"] or []
    return all(a < b for a, b in pairwise([-1, *keep, cells]))


def _check_amounts(value: Any) -> None:
    """Raise a ValueError where a text, a list or a number is larger than that of any trace."""
    if isinstance(value, str):
        large = len(value) > MOST_LETTERS
    elif isinstance(value, (int, float)):
        large = not abs(value) <= LARGEST
    else:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        large = len(inner) > MOST_ENTRIES
        for part in () if large else inner:
            _check_amounts(part)
    if large:
        raise ValueError("it holds a text, a list or a number that is larger than that of any trace")
