"""The trace: a record of one answer about images and clips, with allocations, maps and word scores.

    trace.save("a.safetensors"); Trace.load("a.safetensors")    one file, readable without a model
    trace.view()                                                JSON, the viewer's input

A loaded trace equals the saved one to the last bit. Letters: H, W the grid; C texture channels.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.stem import FOREIGN
from arr_coc.data.record import Box
from arr_coc.files.atomic import one_line, write_atomic
from arr_coc.files.images import MAX_PIXELS
from arr_coc.modes.magnify import MAX_SCALE
from arr_coc.trace.evidence import EvidenceScore, Guidance, check_boxes, score
from arr_coc.trace.strip import RECORD, Strip, check_amount, check_map, strip_of
from arr_coc.trace.view import SHARED, encode, evidence_view, mode_view

FORMAT = "arr-coc trace 2"
OLD_STILL, OLD_CLIPS = "arr-coc trace 1", "arr-coc clip trace 1"  # formats until November 2026
MAX_BYTES, MAX_HEADER = 2**29, 2**24  # of a file and of its header
MAX_LETTERS, MAX_ENTRIES, MAX_NUMBER = 100_000, 100_000, 2**53  # longest text, list or object; largest number

_NUMBER, _BUDGET, _TIMES = (int, float), (int, float, str), {str: (int, float)}
STRIP: dict[str, Any] = {  # JSON fields of a strip and their types, see `fits`
    "lengths": [int],  # bytes of each picture
    "spans": [[_NUMBER]],
    "cuts": [int],
    "side": [int],
    "allocation": {"tensions": {str: _NUMBER}, "budget": _BUDGET, "void": bool},
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
PLAIN: dict[str, Any] = {  # JSON fields of a trace and their types
    "question": str,
    "answer": str,
    "mode": str,
    "budget": _BUDGET,
    "kept": int,
    "total": int,
    "read": int,
    "magnified": ([_NUMBER], type(None)),
    "fallback": bool,
    "note": (str, type(None)),
    "ms": _TIMES,
    "model": str,
    "strips": [STRIP],
    "full": ({"text": str, "ms": _TIMES, "again": (_TIMES, type(None))}, type(None)),
    "machine": str,
    "again": (_TIMES, type(None)),
    "true_answers": [str],
    "channels": [str],
    "words": [{"text": str, "pull": _NUMBER, "scored": bool}],
    "probes": dict,
    "evidence": [[_NUMBER]],
}


@dataclass(frozen=True)
class FullAnswer:
    """An answer from all tokens."""

    text: str
    ms: dict[str, float]  # milliseconds per stage, as in `Answer.ms`, with nothing cached
    again: dict[str, float] | None = None  # the same without encoding, which the stock model could cache


@dataclass(frozen=True, eq=False)
class QuestionWord:
    """A piece of the question: a word, or the text between two words."""

    text: str
    pull: float = 0.0  # 1 - IoU of the cells kept with and without it, in [0, 1]
    heat: Tensor | None = None  # float [H, W] in [0, 1], each cell's coupling with it; None: not scored


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """A record of one answer about images and clips, complete for drawing it.

    Attributes:
        question: the question, unchanged.
        answer: from the kept tokens.
        mode: the mode that ran.
        budget: of the call, for each image and clip.
        kept: number of kept cells of all images and clips.
        total: number of their cells.
        read: visual tokens that the language model read: of kept cells, magnified or not, and a coarse view.
        fallback: whether choosing failed and all tokens were used.
        note: why another mode ran than the call's, or None.
        ms: milliseconds per stage, as in `Answer.ms`, with nothing cached.
        model: name of the base model.
        strips: the images and clips in order; an image's cells in mode "compress" are the coarse view's.
        magnified: per image, how many times finer its kept cells were read, 1 if no finer; None if none was.
        full: the answer from all tokens, if made.
        machine: what the times were taken on; "": unknown.
        again: milliseconds per stage of the same question with a cached encoding; None: not measured.
        true_answers: known true answers, if any.
        texture: float [C, H, W] in [0, 1]; this and all below are None or empty unless of one image.
        channels: names of the C channels.
        words: pieces that join to the question.
        probes: results of `arr_coc_lab.evaluate.probes` by name, as JSON values.
        evidence: boxes (x0, y0, x1, y1) in px of the picture that show the answer, if known.

    Raises:
        ValueError: a field is invalid, or does not fit the others.
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
    strips: tuple[Strip, ...]
    magnified: tuple[float, ...] | None = None
    full: FullAnswer | None = None
    machine: str = ""
    again: dict[str, float] | None = None
    true_answers: tuple[str, ...] = ()
    texture: Tensor | None = None
    channels: tuple[str, ...] = ()
    words: tuple[QuestionWord, ...] = ()
    probes: dict[str, Any] = field(default_factory=dict)
    evidence: tuple[Box, ...] = ()

    def __post_init__(self) -> None:
        """Check that the fields fit each other, as all drawing code requires."""
        if not self.strips:
            raise ValueError("a trace needs an image or a clip, and has none")
        check_amount(self.strips)
        kept = sum(strip.allocation.kept for strip in self.strips)
        if not 0 < self.kept == kept <= min(self.total, self.read):
            raise ValueError(
                f"kept {self.kept}, total {self.total} and read {self.read} do not fit allocations of {kept}"
            )
        scales = (1.0,) * len(self.strips) if self.magnified is None else self.magnified
        if len(scales) != len(self.strips) or not all(1 <= scale <= MAX_SCALE for scale in scales):
            raise ValueError(f"magnified {scales} must be from 1 to {MAX_SCALE:g}, one an image")
        times = [self.ms, self.again, *((self.full.ms, self.full.again) if self.full else ())]
        spent = [time for one in times if one is not None for time in one.values()]
        if not all(0 <= time for time in spent):
            raise ValueError(f"milliseconds {spent} must not be below 0")
        if self.is_of_image:
            self._check_image()
        elif self.texture is not None or self.channels or self.words or self.probes or self.evidence:
            raise ValueError(
                "texture, words, probes and evidence are of one image, and this has clips or several"
            )
        check_plain(self._plain())

    def _check_image(self) -> None:
        """Raise a ValueError unless the fields for one image fit its grid."""
        grid = self.allocation.grid[1:]
        if self.texture is not None:
            check_map("texture", self.texture, (len(self.channels), *grid))
        elif self.channels:
            raise ValueError(f"channels {self.channels} are named, but there is no texture")
        for word in self.words:
            if word.heat is not None:
                check_map(f"heat of {word.text!r}", word.heat, grid)
        for spot in self.guidance.spots if self.guidance else ():
            check_map(f"heat of {spot.label!r}", spot.heat, grid)
        check_boxes(self.evidence)
        if self.words and "".join(word.text for word in self.words) != self.question:
            raise ValueError("the words, joined, are not the question")
        pulls = [word.pull for word in self.words]
        if not all(0 <= pull <= 1 for pull in pulls):
            raise ValueError(f"pulls {pulls} must lie in [0, 1]")

    # ---- derived values ---------------------------------------------------------------------------------

    @property
    def is_of_image(self) -> bool:
        """Whether the trace is of one image."""
        return len(self.strips) == 1 and not self.strips[0].is_clip

    @property
    def has_clips(self) -> bool:
        """Whether one of the strips (images and clips) is of a clip."""
        return any(strip.is_clip for strip in self.strips)

    @property
    def allocation(self) -> Allocation:
        """The allocation of the first image or clip."""
        return self.strips[0].allocation

    @property
    def guidance(self) -> Guidance | None:
        """The guide's record for the first image or clip; None if it wasn't used."""
        return self.strips[0].guidance

    @cached_property
    def picture(self) -> Image.Image:
        """The first picture, RGB; of one image exactly what the model read."""
        return self.strips[0].picture(0)

    @property
    def agree(self) -> bool | None:
        """Whether both answers are the same text; None without an answer from all tokens."""
        return None if self.full is None else self.full.text.strip() == self.answer.strip()

    @property
    def is_true(self) -> bool | None:
        """Whether the answer is among `true_answers`, ignoring case and spaces; None if there are none."""
        return is_among(self.answer, self.true_answers)

    @property
    def scored(self) -> EvidenceScore:
        """The evidence boxes and what was kept of them."""
        return score(self.evidence, self.allocation, self.picture.size)

    def with_probe(self, name: str, result: dict[str, Any]) -> Trace:
        """Return a copy with the result of a probe; a ValueError if JSON changes it."""
        return replace(self, probes=self.probes | {name: result})

    # ---- files ------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write one safetensors file: pictures as WebP or PNG, maps as float32, the rest as JSON.

        Raises:
            OSError: the path can't be written; an existing file is unchanged.
        """
        tensors = {
            f"{number}.{name}": part
            for number, strip in enumerate(self.strips)
            for name, part in strip.to_tensors().items()
        }
        if self.texture is not None:
            tensors["texture"] = self.texture
        if heats := [word.heat for word in self.words if word.heat is not None]:
            tensors["heats"] = torch.stack(heats)
        # safetensors refuses tensors that share storage, as maps may: each is saved as a copy.
        own = {name: part.clone(memory_format=torch.contiguous_format) for name, part in tensors.items()}
        about = {"format": FORMAT, "plain": json.dumps(self._plain(), allow_nan=False)}
        write_atomic(to_safetensors(own, about), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file of `save`, in this or an earlier format; a ValueError unless it is a trace."""
        try:
            return cls(**_fields(*_read(Path(path))))
        except (OSError, ValueError, KeyError, RecursionError, SafetensorError) as error:
            what = f"{str(path)!r} is not a saved trace ({one_line(error)})"
            raise ValueError(f"{what}; write one with Trace.save or arr-coc ask --trace") from error

    def _plain(self) -> dict[str, Any]:
        """Return the JSON fields, as typed by `PLAIN`."""
        return {name: getattr(self, name) for name in PLAIN} | {
            "strips": [strip.to_plain() for strip in self.strips],
            "magnified": None if self.magnified is None else list(self.magnified),
            "full": None if self.full is None else asdict(self.full),
            "true_answers": list(self.true_answers),
            "channels": list(self.channels),
            "words": [{"text": w.text, "pull": w.pull, "scored": w.heat is not None} for w in self.words],
            "evidence": [list(box) for box in self.evidence],
        }

    # ---- drawing ----------------------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """Return the viewer's input as JSON values (see `trace.view`); weights and tensions of the first
        strip.
        """
        first, *others = self.strips
        strips = [first.view(self.texture, self.channels), *(strip.view() for strip in others)]
        words = [
            {"text": w.text, "pull": w.pull, "data": None if w.heat is None else encode(w.heat)}
            for w in self.words
        ]
        return {
            **{name: value for name, value in self._plain().items() if name != "channels"},
            **SHARED,
            **mode_view(self.mode),
            "agree": self.agree,
            "foreign": FOREIGN in (self.note or ""),
            "is_true": self.is_true,
            "full_is_true": None if self.full is None else is_among(self.full.text, self.true_answers),
            "weights": strips[0]["weights"],
            "tensions": strips[0]["tensions"],
            "words": words,
            "evidence": evidence_view(self.evidence, self.allocation, first.size),
            "strips": strips,
        }


def is_among(answer: str, truths: Sequence[str]) -> bool | None:
    """Return whether an answer is among `truths`, ignoring case and spaces; None if there are none."""
    every = [" ".join(truth.split()).casefold() for truth in truths]
    return " ".join(answer.split()).casefold() in every if every else None


def check_plain(plain: dict[str, Any]) -> None:
    """Raise a ValueError unless JSON keeps the fields unchanged."""
    try:
        unchanged = json.loads(json.dumps(plain, allow_nan=False)) == plain
    except (TypeError, RecursionError) as error:
        raise ValueError(f"JSON can't hold this trace: {error}") from error
    if not unchanged:
        raise ValueError("JSON would change this trace: use lists, not tuples, and text for keys")


# ---- reading a file, which is untrusted -----------------------------------------------------------------


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the JSON fields of a file, of checked types, and its tensors by name, unchecked."""
    size = path.stat().st_size
    if not 8 < size <= MAX_BYTES:
        raise ValueError(f"{size:,} bytes; a trace has 9 to {MAX_BYTES:,}")
    data = path.read_bytes()
    # A safetensors file begins with the length of its header, 8 bytes
    end = 8 + int.from_bytes(data[:8], "little")
    if end > MAX_HEADER:
        raise ValueError(f"a header of {end:,} bytes; a trace has at most {MAX_HEADER:,}")
    tensors = from_safetensors(data)
    about = json.loads(data[8:end]).get("__metadata__", {})
    if about.get("format") not in (FORMAT, OLD_STILL, OLD_CLIPS):
        raise ValueError(f"format {about.get('format')!r}, need {FORMAT!r}")
    plain = json.loads(about.get("plain", "null"))
    _check_amounts(plain)
    if type(plain) is not dict:
        raise ValueError("its fields are no object")
    if about["format"] == OLD_STILL:
        plain, tensors = _from_still(plain, tensors)
    elif about["format"] == OLD_CLIPS:
        plain = {"channels": [], "words": [], "probes": {}, "evidence": []} | plain
    plain = {"magnified": None} | plain  # files until November 2026 lack it
    if set(plain) != set(PLAIN):
        raise ValueError(f"it does not have the fields {', '.join(PLAIN)}")
    if wrong := [name for name, one in PLAIN.items() if not fits(plain[name], one)]:
        raise ValueError(f"{', '.join(wrong)}: not of the kind that a trace has there")
    return plain, tensors


def _from_still(
    plain: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the fields and tensors of an `OLD_STILL` file in today's format."""
    pixels = tensors.pop("picture")  # uint8 [h, w, 3]
    shape = tuple(pixels.shape)
    if (
        pixels.dtype != torch.uint8
        or len(shape) != 3
        or shape[2] != 3
        or not 0 < pixels.numel() <= 3 * MAX_PIXELS
    ):
        raise ValueError(f"the picture has shape {shape}, not [h, w, 3] of at most {MAX_PIXELS:,} px")
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "png", compress_level=1)
    strip = {"lengths": [file.tell()], "spans": [], "cuts": [], "side": [shape[1], shape[0]]}
    strip |= {name: plain.pop(name) for name in ("allocation", "guidance")}
    own = {f"0.{name}" if name in RECORD or name == "spots" else name: part for name, part in tensors.items()}
    own["0.pictures"] = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    return plain | {"strips": [strip]}, own


def _fields(plain: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the arguments of `Trace` from a file's fields and tensors."""
    kinds: dict[str, torch.dtype] = {"texture": torch.float32} if plain["channels"] else {}
    scored = sum(word["scored"] for word in plain["words"])
    kinds |= {"heats": torch.float32} if scored else {}
    for number in range(len(plain["strips"])):
        own = RECORD | {"pictures": torch.uint8}
        own |= {"spots": torch.float32} if f"{number}.spots" in tensors else {}
        kinds |= {f"{number}.{name}": kind for name, kind in own.items()}
    if {name: part.dtype for name, part in tensors.items()} != kinds:
        raise ValueError(f"its tensors are not {', '.join(kinds)}")
    texture, heats = tensors.pop("texture", None), tensors.pop("heats", torch.zeros(0))
    if tuple(heats.shape[:1]) != (scored,):
        raise ValueError(f"heats {tuple(heats.shape)} do not fit {scored} scored words")
    heat = iter(heats)
    words = [QuestionWord(w["text"], w["pull"], next(heat) if w["scored"] else None) for w in plain["words"]]
    names = (*RECORD, "pictures", "spots")
    strips = [
        strip_of(one, {name: tensors[key] for name in names if (key := f"{number}.{name}") in tensors})
        for number, one in enumerate(plain["strips"])
    ]
    return plain | {
        "strips": tuple(strips),
        "magnified": None if plain["magnified"] is None else tuple(plain["magnified"]),
        "full": None if plain["full"] is None else FullAnswer(**plain["full"]),
        "texture": texture,
        "channels": tuple(plain["channels"]),
        "true_answers": tuple(plain["true_answers"]),
        "words": tuple(words),
        "evidence": tuple(tuple(box) for box in plain["evidence"]),
    }


def fits(value: Any, kind: Any) -> bool:
    """Return whether a JSON value matches a type, one of a tuple, [of each], {str: of each} or {name: of
    it}.
    """
    if isinstance(kind, tuple):
        return any(fits(value, one) for one in kind)
    if isinstance(kind, list):
        return type(value) is list and all(fits(part, kind[0]) for part in value)
    if not isinstance(kind, dict):
        # Not isinstance: True is an int.
        return type(value) is kind
    if type(value) is not dict or not (str in kind or set(value) == set(kind)):
        return False
    return all(fits(part, kind.get(str, kind.get(name))) for name, part in value.items())


def _check_amounts(value: Any) -> None:
    """Raise a ValueError for a text, list or number larger than in any trace."""
    if isinstance(value, str):
        large = len(value) > MAX_LETTERS
    elif isinstance(value, (int, float)):
        large = not abs(value) <= MAX_NUMBER
    else:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        large = len(inner) > MAX_ENTRIES
        for part in () if large else inner:
            _check_amounts(part)
    if large:
        raise ValueError("it holds a text, a list or a number that is larger than that of any trace")
