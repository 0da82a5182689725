"""The trace: a record of one answer about one image, with its allocation, maps and word scores.

    trace.save("a.safetensors"); Trace.load("a.safetensors")    one file, no model, nothing of the machine
    trace.view()                                                JSON, all that a viewer draws

Everything drawn comes from a trace; nothing is computed again. A loaded trace equals the saved one to the
last bit. A file that is no trace is a ValueError of one line. Letters: H, W the grid, C texture channels.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import save as to_safetensors
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.data.record import Box
from arr_coc.files.atomic import write_whole
from arr_coc.files.images import MAX_PIXELS
from arr_coc.trace.answer_trace import AnswerTrace, Reply, check_plain
from arr_coc.trace.evidence import Scored, check_boxes, score
from arr_coc.trace.guidance import Guidance
from arr_coc.trace.strip import check_guidance, check_map, check_record
from arr_coc.trace.trace_file import FORMAT, PLAIN, check_probes, read_parts
from arr_coc.trace.view import (
    SCORES,
    allocation_view,
    encode,
    evidence_view,
    guidance_view,
    mode_view,
    picture_view,
)

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
        write_whole(to_safetensors(own, about), Path(path))

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
