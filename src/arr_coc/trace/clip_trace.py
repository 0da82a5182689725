"""The trace of an answer about a clip, or about several images and clips together.

    trace.save("a.safetensors"); load_trace("a.safetensors")    one file, no model, nothing of the machine
    trace.view()                                                JSON, all that a viewer draws

Beside what a `Trace` of one image holds of the answer there is a `Strip` for each image and clip. A loaded
trace equals the saved one to the last bit. `load_trace` opens traces of both kinds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save as to_safetensors
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.files.atomic import one_line, write_whole
from arr_coc.trace.answer_trace import AnswerTrace, Reply, check_plain
from arr_coc.trace.strip import Strip, check_amount, strip_of
from arr_coc.trace.trace import Trace
from arr_coc.trace.trace_file import CLIP_FORMAT, CLIPS, file_format, read_parts
from arr_coc.trace.view import CLIP_VIEW_FORMAT, SCORES, mode_view

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
        write_whole(to_safetensors(tensors, about), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> ClipTrace:
        """Read a trace written by `save`.

        Raises:
            ValueError: the file is missing, or is not a trace of clips.
        """
        try:
            return cls(**_parts(*read_parts(Path(path), CLIPS)))
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


def _parts(plain: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
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
