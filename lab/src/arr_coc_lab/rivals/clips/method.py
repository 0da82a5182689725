"""The table of methods for clips: every way to spend visual tokens on a video.

    CLIP_METHODS["evs"].choose(ClipView((T, H, W), features), 256)      Bool [T, H * W]

T time steps, N = H * W cells of each, D width of the encoder's features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from arr_coc.files.validation import nearest
from arr_coc_lab.results.kinds import KINDS, Kind
from arr_coc_lab.rivals.clips.coarse_frames import CoarseFrames
from arr_coc_lab.rivals.method import Style, add_in_order

Input = Literal["features", "attention", "scores"]  # scores: [T], fit to the question
Stage = Literal["before", "after"]  # relative to the vision encoder


@dataclass(frozen=True, eq=False)
class ClipView:
    """What a method may read of one clip of `grid` (T, H, W) and one question."""

    grid: tuple[int, int, int]
    features: Tensor | None = None  # Float [T, N, D], the encoded cells in raster order
    attention: Tensor | None = None  # Float [T, N], at least 0, that each cell receives in the encoder
    scores: Tensor | None = None  # Float [T], how well each time step fits the question
    key: str = ""  # the clip and the question, which with `seed` decide random draws
    seed: int = 0

    def read(self, name: Input) -> Tensor:
        """One of the inputs; ValueError if the view lacks it."""
        values = getattr(self, name)
        if values is None:
            raise ValueError(f"this clip has no {name}: pass them to the view")
        return values

    def generator(self, method: str) -> torch.Generator:
        """Return a generator seeded by the run, the clip, the question and the method's name."""
        text = f"{self.seed}/{self.key}/{method}"
        # 63 bits, as torch's seeds are signed
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
        return torch.Generator().manual_seed(number)


SelectCells = Callable[[ClipView, int], Tensor | CoarseFrames]
"""(view, tokens to spend) -> Bool [T, N], or the sizes of frames that are encoded smaller."""


@dataclass(frozen=True)
class ClipMethod:
    """One way to spend a budget of visual tokens on a clip; every rival names its `paper` and `title`.

    ValueError for a name that result files can't hold, an unknown kind, or a rival without its publication.
    """

    name: str
    kind: Kind
    # the rule: (view, tokens) -> Bool [T, N] with exactly that many cells, or `CoarseFrames` of at most
    # as many
    select: SelectCells
    stage: Stage  # whether it chooses before the encoder or after it
    needs: frozenset[Input] = frozenset()  # what it reads of a clip beside its grid
    by_question: bool = False  # it chooses anew for each question; else once for a clip
    label: str = ""  # its name in prose; the name itself if empty
    paper: str = ""
    title: str = ""
    style: Style = field(default_factory=Style)

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.strip() or any(sign in self.name for sign in "@,\n"):
            raise ValueError(f"method name {self.name!r} is empty, padded, or has a comma or @: use others")
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r} of {self.name!r} is unknown: use one of {', '.join(KINDS)}")
        if self.kind == "rival" and not (self.paper and self.title):
            raise ValueError(f"rival {self.name!r} names no publication: give its paper and title")
        if not self.label:
            object.__setattr__(self, "label", self.name)

    def missing(self, view: ClipView) -> list[str]:
        """Return what the method needs and the view lacks, sorted."""
        return sorted(name for name in self.needs if getattr(view, name) is None)

    def choose(self, view: ClipView, budget: int) -> Tensor | CoarseFrames:
        """Spend `budget` tokens on a clip; a budget beyond the clip keeps all of it.

        ValueError if the view lacks what the method needs, or its tensors don't fit one another.
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


CLIP_METHODS: dict[str, ClipMethod] = {}  # in the order of `KINDS`, then of registration


def register_clip_method(method: ClipMethod) -> ClipMethod:
    """Add a method to the table; raises as `add_in_order`."""
    return add_in_order(CLIP_METHODS, method)


def find_clip_method(name: str) -> ClipMethod:
    """Return the method of a name; ValueError if there is none, with the nearest known one."""
    if name not in CLIP_METHODS:
        raise ValueError(
            f"method {name!r} is unknown{nearest(name, CLIP_METHODS)}; use some of {', '.join(CLIP_METHODS)}"
        )
    return CLIP_METHODS[name]
