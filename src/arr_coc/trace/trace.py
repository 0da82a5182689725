"""The trace: a record of one answer about one image, with its allocation, maps and word scores.

    trace.save("a.safetensors"); Trace.load("a.safetensors")    one file, no model, nothing of the machine
    trace.view()                                                JSON, all that a viewer draws

Everything drawn comes from a trace; nothing is computed again. A loaded trace equals the saved one to the
last bit. A file that is no trace is a ValueError of one line. Letters: H, W the grid, C texture channels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.data.record import Box
from arr_coc.files.atomic import one_line, write_atomic
from arr_coc.files.images import MAX_PIXELS
from arr_coc.trace.evidence import Guidance, Scored, check_boxes, score
from arr_coc.trace.strip import Strip, check_amount, check_guidance, check_map, check_record, strip_of
from arr_coc.trace.view import (
    CLIP_VIEW_FORMAT,
    SCORES,
    allocation_view,
    encode,
    evidence_view,
    guidance_view,
    mode_view,
    picture_view,
)

# What every trace holds of an answer, be it about an image, a clip or several of either.


@dataclass(frozen=True)
class Reply:
    """An answer from all tokens.

    Attributes:
        text: the answer.
        ms: milliseconds per stage, as in `Answer.ms`, from scratch.
        again: as of `AnswerTrace.again`: without the encoding, which the stock model could keep.
    """

    text: str
    ms: dict[str, float]
    again: dict[str, float] | None = None


def check_plain(plain: dict[str, Any]) -> None:
    """Raise a ValueError unless JSON holds the fields of a trace unchanged."""
    try:
        unchanged = json.loads(json.dumps(plain, allow_nan=False)) == plain
    except (TypeError, RecursionError) as error:
        raise ValueError(f"JSON can't hold this trace: {error}") from error
    if not unchanged:
        raise ValueError("JSON would change this trace: use lists, not tuples, and text for keys")


def is_among(answer: str, truths: Sequence[str]) -> bool | None:
    """Whether an answer is one of some, but for case and spaces; None where there are none."""
    every = [" ".join(truth.split()).casefold() for truth in truths]
    return " ".join(answer.split()).casefold() in every if every else None


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerTrace:
    """A record of one answer, whatever it is about.

    Attributes:
        question: the question, unchanged.
        answer: from the kept tokens.
        mode: the mode that ran.
        budget: the budget of the call, for each image and clip.
        kept: number of kept cells of all of them.
        total: number of their cells.
        read: number of visual tokens that the language model read. In mode "saccade" `read - kept` of them
            are the coarse view.
        fallback: whether the allocation failed and all tokens were used.
        note: why another mode ran than the one of the call; None: it did not.
        ms: milliseconds per stage, as in `Answer.ms`, from scratch: nothing of the image was computed before.
        model: name of the base model.
        full: the answer from all tokens, if it was made.
        machine: what the times were taken on, in words; "": not known.
        again: milliseconds per stage of the question asked once more, in a session that has kept what it
            computed of the image; None: not measured.
        true_answers: answers that are known to be true; none: not known.
    """

    question: str
    answer: str
    mode: str
    budget: int | float | str
    kept: int
    total: int
    read: int
    fallback: bool
    note: str | None
    ms: dict[str, float]
    model: str
    full: Reply | None = None
    machine: str = ""
    again: dict[str, float] | None = None
    true_answers: tuple[str, ...] = ()

    def check_times(self) -> None:
        """Raise a ValueError where a stage of an answer took less than no time."""
        full = self.full
        stages = [self.ms, self.again, *((full.ms, full.again) if full else ())]
        times = [time for one in stages if one is not None for time in one.values()]
        if not all(0 <= time for time in times):
            raise ValueError(f"milliseconds {times} must not be below 0")

    @property
    def agree(self) -> bool | None:
        """Whether both answers are the same text; None without an answer from all tokens."""
        return None if self.full is None else self.full.text.strip() == self.answer.strip()

    @property
    def is_true(self) -> bool | None:
        """Whether the answer is one of `true_answers`, but for case and spaces; None where none is known."""
        return is_among(self.answer, self.true_answers)

    def verdicts(self) -> dict[str, bool | None]:
        """What a viewer draws of whether the answers agree and are true."""
        full = None if self.full is None else is_among(self.full.text, self.true_answers)
        return {"agree": self.agree, "is_true": self.is_true, "full_is_true": full}


# Reading of a trace's file, which is untrusted: its size, header and types of fields are checked.
#
#     read_parts(path, TRACE) -> (fields, tensors)      of a `Trace`; of a `ClipTrace` with CLIPS
#     check_probes(probes, cells)                       those that a viewer draws
#     file_format(path) -> "arr-coc trace 1"            what a file says it is
#
# What the fields say is checked where they become a `Trace` or a `ClipTrace`. A file of version 0.1.0 has
# fewer
# fields; the others are as `LATER` says.

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


# The trace of an answer about a clip, or about several images and clips together.
#
#     trace.save("a.safetensors"); load_trace("a.safetensors")    one file, no model, nothing of the machine
#     trace.view()                                                JSON, all that a viewer draws
#
# Beside what a `Trace` of one image holds of the answer there is a `Strip` for each image and clip. A loaded
# trace equals the saved one to the last bit. `load_trace` opens traces of both kinds.

_LONGS, _FLOATS = ("keep", "order", "positions", "reasons"), (*SCORES, "weights")
_KINDS = (
    dict.fromkeys(_LONGS, torch.int64) | dict.fromkeys(_FLOATS, torch.float32) | {"pictures": torch.uint8}
)
_SHARED = ("palette", "reason_names", "format")
"""What the views of all strips have in common."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ClipTrace(AnswerTrace):
    """A record of one answer about a clip, or about several images and clips, complete for drawing it.

    Attributes:
        strips: the images and clips in the order of the prompt.

    Raises:
        ValueError: a field is invalid, or does not fit the others.
    """

    strips: tuple[Strip, ...]

    def __post_init__(self) -> None:
        """Check that the fields fit each other; all drawing code relies on it."""
        if not self.strips:
            raise ValueError("a trace needs an image or a clip, and has none")
        check_amount(self.strips)
        kept = sum(strip.allocation.kept for strip in self.strips)
        if not 0 < self.kept == kept <= min(self.total, self.read):
            raise ValueError(
                f"kept {self.kept}, total {self.total} and read {self.read} do not fit allocations of {kept}"
            )
        self.check_times()
        check_plain(self._plain())

    @property
    def allocation(self) -> Allocation:
        """Of the first image or clip, as of an `Answer`."""
        return self.strips[0].allocation

    @property
    def has_clips(self) -> bool:
        """Whether any of the strips is a clip."""
        return any(strip.is_clip for strip in self.strips)

    def save(self, path: str | Path) -> None:
        """Write the trace as one safetensors file: pictures as WebP, maps float32, the rest JSON.

        Raises:
            OSError: the path cannot be written; an older file there is as it was.
        """
        tensors: dict[str, Tensor] = {}
        for number, strip in enumerate(self.strips):
            own = {name: getattr(strip.allocation, name) for name in (*_LONGS, *_FLOATS)}
            own["pictures"] = torch.frombuffer(bytearray(b"".join(strip.pictures)), dtype=torch.uint8)
            # Maps may share storage, which safetensors refuses; each is saved as a copy.
            whole = torch.contiguous_format
            tensors |= {f"{number}.{name}": part.clone(memory_format=whole) for name, part in own.items()}
        about = {"format": CLIP_FORMAT, "plain": json.dumps(self._plain(), allow_nan=False)}
        write_atomic(to_safetensors(tensors, about), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> ClipTrace:
        """Read a trace written by `save`.

        Raises:
            ValueError: the file is missing, or is not a trace of clips.
        """
        try:
            return cls(**_visual_parts(*read_parts(Path(path), CLIPS)))
        except (OSError, ValueError, KeyError, RecursionError, SafetensorError) as error:
            raise _refusal(path, error) from error

    def view(self) -> dict[str, Any]:
        """The viewer's input, as JSON-safe values; see `trace.view`. What a history draws is of the first
        strip.
        """
        plain, views = self._plain(), [strip.view() for strip in self.strips]
        shared = {name: views[0][name] for name in (*_SHARED, "weights", "tensions")}
        own = [{name: view[name] for name in view if name not in _SHARED} for view in views]
        return {
            **{name: plain[name] for name in plain if name != "strips"},
            **mode_view(self.mode),
            **shared,
            "format": CLIP_VIEW_FORMAT,
            "strips": own,
            **self.verdicts(),
        }

    def _plain(self) -> dict[str, Any]:
        """The fields that are no tensors, in the types of `CLIPS`."""
        names = (part.name for part in fields(self))
        return {name: getattr(self, name) for name in names} | {
            "strips": [strip.to_plain() for strip in self.strips],
            "full": None if self.full is None else asdict(self.full),
            "true_answers": list(self.true_answers),
        }


def load_trace(path: str | Path) -> Trace | ClipTrace:
    """Read a saved trace, of one image or of clips.

    Raises:
        ValueError: the file is missing, or is not a trace.
    """
    try:
        is_of_clips = file_format(Path(path)) == CLIP_FORMAT
    except (OSError, ValueError, RecursionError) as error:
        raise _refusal(path, error) from error
    return ClipTrace.load(path) if is_of_clips else Trace.load(path)


def _refusal(path: str | Path, error: Exception) -> ValueError:
    return ValueError(f"{str(path)!r} is not a saved trace ({one_line(error)}); write one with its save()")


def _visual_parts(plain: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The arguments of `ClipTrace` from a file's fields and tensors."""
    count = len(plain["strips"])
    kinds = {f"{number}.{name}": kind for number in range(count) for name, kind in _KINDS.items()}
    if {name: part.dtype for name, part in tensors.items()} != kinds:
        raise ValueError(f"its tensors are not {', '.join(_KINDS)} of {count} images and clips")
    strips = tuple(
        strip_of(one, {name: tensors[f"{number}.{name}"] for name in _KINDS})
        for number, one in enumerate(plain["strips"])
    )
    return plain | {
        "strips": strips,
        "full": None if plain["full"] is None else Reply(**plain["full"]),
        "true_answers": tuple(plain["true_answers"]),
    }


_MAPS = tuple(SCORES)


@dataclass(frozen=True, eq=False)
class Word:
    """A piece of the question: a word, or the text between two words.

    Attributes:
        text: the piece, unchanged.
        pull: 1 - IoU of the cells kept with and without it, in [0, 1].
        heat: float [H, W] in [0, 1], the coupling of the cells with this word alone; None for text between
            words, or a word that was not scored.
    """

    text: str
    pull: float = 0.0
    heat: Tensor | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace(AnswerTrace):
    """A record of one answer about one image, complete for drawing it.

    Attributes:
        picture: RGB, the picture that the model read; each side a multiple of the grid's.
        allocation: the kept cells and the reasons for them, on the CPU. In mode "compress" its cells are
            those of the coarse view.
        texture: float [C, H, W] in [0, 1].
        channels: names of the C channels.
        words: the pieces of the question; joined, their texts are the question.
        probes: results of `evaluate.probes` by name; JSON holds them unchanged.
        evidence: boxes (x0, y0, x1, y1) in px of the picture that show the answer; none: not known.
        guidance: what the guide read, where the cells were chosen by its word; None: they were not.

    Raises:
        ValueError: a field is invalid, or does not fit the others.
    """

    picture: Image.Image
    allocation: Allocation
    texture: Tensor | None = None
    channels: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()
    probes: dict[str, Any] = field(default_factory=dict)
    evidence: tuple[Box, ...] = ()
    guidance: Guidance | None = None

    def __post_init__(self) -> None:
        """Check that the fields fit each other; all drawing code relies on it."""
        frames, *grid = self.allocation.grid
        if frames != 1:
            raise ValueError(f"a trace is of one frame, the record has {frames}: trace each frame by itself")
        (height, width), (w, h) = grid, self.picture.size
        if self.picture.mode != "RGB" or w % width or h % height:
            actual = f"{self.picture.mode} of {w}x{h} px"
            raise ValueError(f"the picture, {actual}, must be RGB and a multiple of {width}x{height}")
        if not 0 < self.kept == self.allocation.kept <= min(self.total, self.read):
            raise ValueError(
                f"kept {self.kept}, total {self.total} and read {self.read} do not fit an allocation of "
                f"{self.allocation.kept}"
            )
        check_record(self.allocation)
        if self.texture is not None:
            check_map("texture", self.texture, (len(self.channels), *grid))
        elif self.channels:
            raise ValueError(f"channels {self.channels} are named, but there is no texture")
        for word in self.words:
            if word.heat is not None:
                check_map(f"heat of {word.text!r}", word.heat, tuple(grid))
        check_boxes(self.evidence)
        spots = () if self.guidance is None else self.guidance.spots
        for spot in spots:
            check_map(f"heat of {spot.label!r}", spot.heat, tuple(grid))
        if self.words and "".join(word.text for word in self.words) != self.question:
            raise ValueError("the words, joined, are not the question")
        self.check_times()
        pulls = [word.pull for word in self.words]
        if not all(0 <= pull <= 1 for pull in pulls):
            raise ValueError(f"pulls {pulls} must lie in [0, 1]")
        if self.guidance is not None:
            check_guidance(self.guidance)
        check_plain(self._plain())

    @property
    def scored(self) -> Scored:
        """The evidence and what was kept of it."""
        return score(self.evidence, self.allocation, self.picture.size)

    def with_probe(self, name: str, result: dict[str, Any]) -> Trace:
        """A copy of the trace with one more result of a probe.

        Raises:
            ValueError: JSON does not hold the result unchanged.
        """
        return replace(self, probes=self.probes | {name: result})

    # ---- files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the trace as one safetensors file: picture uint8 [h, w, 3], maps float32, the rest JSON.

        Raises:
            OSError: the path cannot be written; an older file there is as it was.
        """
        tensors = _tensors(self.allocation) | {"picture": torch.from_numpy(np.array(self.picture))}
        if self.texture is not None:
            tensors["texture"] = self.texture
        if heats := [word.heat for word in self.words if word.heat is not None]:
            tensors["heats"] = torch.stack(heats)
        if self.guidance is not None and self.guidance.spots:
            tensors["spots"] = torch.stack([spot.heat for spot in self.guidance.spots])
        # Maps may share storage, which safetensors refuses; each is saved as a copy.
        own = {name: part.clone(memory_format=torch.contiguous_format) for name, part in tensors.items()}
        about = {"format": FORMAT, "plain": json.dumps(self._plain(), allow_nan=False)}
        write_atomic(to_safetensors(own, about), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace written by `save`.

        Raises:
            ValueError: the file is missing, or is not a trace.
        """
        try:
            return cls(**_parts(*read_parts(Path(path))))
        except (OSError, ValueError, KeyError, RecursionError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"{str(path)!r} is not a saved trace ({reason}); write one with Trace.save"
            ) from error

    def _plain(self) -> dict[str, Any]:
        """The fields that are no tensors, in the types of `PLAIN`."""
        record = {name: getattr(self.allocation, name) for name in PLAIN["allocation"]}
        words = [{"text": w.text, "pull": w.pull, "scored": w.heat is not None} for w in self.words]
        full = None if self.full is None else asdict(self.full)
        lists = {name: list(getattr(self, name)) for name in ("channels", "true_answers")}
        guidance = None if self.guidance is None else self.guidance.to_dict()
        parts = {"allocation": record, "words": words, "full": full, "guidance": guidance, **lists}
        parts["evidence"] = [list(box) for box in self.evidence]
        return {name: getattr(self, name) for name in PLAIN} | parts

    # ---- drawing --------------------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """The viewer's input, as JSON-safe values; see `trace.view`."""
        record, plain = self.allocation, self._plain()
        drawn = ("allocation", "channels", "evidence", "guidance")
        return {
            **{name: plain[name] for name in plain if name not in drawn},
            **picture_view(self.picture),
            **allocation_view(record, self.texture, self.channels),
            **mode_view(self.mode),
            **self.verdicts(),
            "words": [
                {"text": w.text, "pull": w.pull, "data": None if w.heat is None else encode(w.heat)}
                for w in self.words
            ],
            "evidence": evidence_view(self.evidence, record, self.picture.size),
            "guidance": guidance_view(self.guidance),
        }


# ---- the parts of a file ------------------------------------------------------------------------------


def _tensors(allocation: Allocation) -> dict[str, Tensor]:
    """The fields of an allocation that are tensors, by name."""
    values = {part.name: getattr(allocation, part.name) for part in fields(allocation)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _parts(plain: dict[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Trace` from a file's fields and tensors."""
    scored = sum(word["scored"] for word in plain["words"])
    kinds = dict.fromkeys(("keep", "order", "positions", "reasons"), torch.int64)
    kinds |= dict.fromkeys((*_MAPS, "weights"), torch.float32) | {"picture": torch.uint8}
    kinds |= {"texture": torch.float32} if plain["channels"] else {}
    kinds |= {"heats": torch.float32} if scored else {}
    guidance = plain["guidance"]
    kinds |= {"spots": torch.float32} if guidance is not None and guidance["spots"] else {}
    if {name: part.dtype for name, part in tensors.items()} != kinds:
        raise ValueError(f"its tensors are not {', '.join(kinds)}")
    picture, texture = tensors.pop("picture"), tensors.pop("texture", None)
    heats, spots = (tensors.pop(name, torch.zeros(0)) for name in ("heats", "spots"))
    shape = tuple(picture.shape)
    if len(shape) != 3 or shape[2] != 3 or not 0 < math.prod(shape) <= 3 * MAX_PIXELS:
        raise ValueError(f"the picture has shape {shape}, not [h, w, 3] of at most {MAX_PIXELS:,} px")
    if tuple(heats.shape[:1]) != (scored,):
        raise ValueError(f"heats {tuple(heats.shape)} do not fit {scored} scored words")
    heat = iter(heats)
    words = [Word(w["text"], w["pull"], next(heat) if w["scored"] else None) for w in plain["words"]]
    grid = tuple(tensors["information"].shape)
    if len(grid) != 3:
        raise ValueError(f"the maps have shape {grid}, not [T, H, W]")
    check_probes(plain["probes"], math.prod(grid))
    return plain | {
        "picture": Image.fromarray(picture.numpy()),
        "allocation": Allocation(**tensors, **plain["allocation"], grid=grid),
        "full": None if plain["full"] is None else Reply(**plain["full"]),
        "texture": texture,
        "channels": tuple(plain["channels"]),
        "true_answers": tuple(plain["true_answers"]),
        "words": tuple(words),
        "evidence": tuple(tuple(box) for box in plain["evidence"]),
        "guidance": None if guidance is None else Guidance.from_dict(guidance, spots),
    }
