"""The table of methods for clips: every way to spend visual tokens on a video, each registered once.

    register_clip_method(ClipMethod("evs", "rival", lambda view, k: evs(view.read("features"), k), ...))
    CLIP_METHODS["evs"].choose(ClipView((T, H, W), features), 256)      Bool [T, H * W]

A table of its own beside `rivals.METHODS`: a method for clips reads time steps, and a comparison of
images can't run it. Letters: T time steps, N = H * W cells of each, D width of the encoder's features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from arr_coc.files.saved import nearest
from arr_coc_lab.results.kinds import KINDS, Kind
from arr_coc_lab.rivals.clips.coarse_frames import CoarseFrames
from arr_coc_lab.rivals.method import Style, add_in_order

Input = Literal["features", "attention", "scores"]
"""Encoded cells; attention that they receive in the encoder; a score of each time step for the question."""
Stage = Literal["before", "after"]
"""Whether a method chooses before the vision encoder, which is saved then, or after it."""


@dataclass(frozen=True, eq=False)
class ClipView:
    """What a method may read of one clip and one question.

    Attributes:
        grid: (T, H, W) cells.
        features: Float [T, N, D], the encoded cells in raster order.
        attention: Float [T, N], at least 0, the attention that each cell receives in the encoder.
        scores: Float [T], how well each time step fits the question.
        key: the clip and the question, for methods that draw.
        seed: of the run, for methods that draw.
    """

    grid: tuple[int, int, int]
    features: Tensor | None = None
    attention: Tensor | None = None
    scores: Tensor | None = None
    key: str = ""
    seed: int = 0

    def read(self, name: Input) -> Tensor:
        """One of the inputs.

        Raises:
            ValueError: the view lacks it.
        """
        values = getattr(self, name)
        if values is None:
            raise ValueError(f"this clip has no {name}: pass them to the view")
        return values

    def generator(self, method: str) -> torch.Generator:
        """A generator of the seed, the clip, the question and the method's name alone."""
        text = f"{self.seed}/{self.key}/{method}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
        return torch.Generator().manual_seed(number)


SelectCells = Callable[[ClipView, int], Tensor | CoarseFrames]
"""(view, tokens to spend) -> Bool [T, N], or the sizes of frames that are encoded smaller."""


@dataclass(frozen=True)
class ClipMethod:
    """One way to spend a budget of visual tokens on a clip.

    Attributes:
        name: as in result files.
        kind: what it is to the comparison: "rival", "null", ...
        select: the rule: (view, tokens) -> Bool [T, N] with exactly that many cells, or `CoarseFrames` of at
            most as many.
        stage: whether it chooses before the encoder or after it.
        needs: what it reads of a clip beside its grid; nothing of a null.
        by_question: it chooses anew for each question; else once for a clip.
        label: its name in prose; the name itself if empty.
        paper: authors, year and number of the publication, "" of a null.
        title: of the publication, "" of a null.
        style: how it is drawn.
        medium: what it chooses from.

    Raises:
        ValueError: a name that result files can't hold, an unknown kind, or a rival without its publication.
    """

    name: str
    kind: Kind
    select: SelectCells
    stage: Stage
    needs: frozenset[Input] = frozenset()
    by_question: bool = False
    label: str = ""
    paper: str = ""
    title: str = ""
    style: Style = field(default_factory=Style)
    medium: Literal["video"] = "video"

    def __post_init__(self) -> None:
        """Check what everything else relies on."""
        if not self.name or self.name != self.name.strip() or any(sign in self.name for sign in "@,\n"):
            raise ValueError(f"method name {self.name!r} is empty, padded, or has a comma or @: use others")
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r} of {self.name!r} is unknown: use one of {', '.join(KINDS)}")
        if self.kind == "rival" and not (self.paper and self.title):
            raise ValueError(f"rival {self.name!r} names no publication: give its paper and title")
        if not self.label:
            object.__setattr__(self, "label", self.name)

    def missing(self, view: ClipView) -> list[str]:
        """What the method needs and the view lacks, in order of the alphabet."""
        return sorted(name for name in self.needs if getattr(view, name) is None)

    def choose(self, view: ClipView, budget: int) -> Tensor | CoarseFrames:
        """Spend `budget` tokens on a clip; a budget beyond the clip keeps all of it.

        Raises:
            ValueError: the view lacks what the method needs, or its tensors don't fit one another.
        """
        missing = self.missing(view)
        if missing:
            raise ValueError(f"method {self.name!r} needs {' and '.join(missing)} of a clip: pass them")
        t, h, w = view.grid
        for name, shape in (("features", (t, h * w)), ("attention", (t, h * w)), ("scores", (t,))):
            values = getattr(view, name)
            if values is not None and tuple(values.shape[: len(shape)]) != shape:
                raise ValueError(
                    f"{name} have shape {tuple(values.shape)}, the clip's grid is {view.grid}: "
                    f"pass {', '.join(map(str, shape))} first"
                )
        return self.select(view, budget)


CLIP_METHODS: dict[str, ClipMethod] = {}
"""By name: kind by kind in the order of `KINDS`, those of a kind as they were registered."""


def register_clip_method(method: ClipMethod) -> ClipMethod:
    """Add a method to the table; raises as `add_in_order`."""
    return add_in_order(CLIP_METHODS, method)


def find_clip_method(name: str) -> ClipMethod:
    """The method of a name.

    Raises:
        ValueError: there is none; names the one that may have been meant.
    """
    if name not in CLIP_METHODS:
        raise ValueError(
            f"method {name!r} is unknown{nearest(name, CLIP_METHODS)}; use some of {', '.join(CLIP_METHODS)}"
        )
    return CLIP_METHODS[name]
