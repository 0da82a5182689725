"""The method table: every way to spend a budget of visual tokens, each registered once by its own file.

    register(Method("divprune", "rival", select=lambda view, i, k: divprune(view.tokens, k)))
    METHODS["divprune"].select(view, 0, 64) -> Reduction(keep [64], tokens or None)

An entry holds everything about a method: kind, needs, label, paper, plot style. Evaluation, plots, the app
and the benchmark read this table and compare no names. Of one that can be varied, NAME:ARGUMENT is a method
too, made when it is asked for: `find_method("fastv:3")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from arr_coc.files.saved import nearest
from arr_coc_lab.results.kinds import KINDS, Kind
from arr_coc_lab.rivals.reduction import Reduction

Count = int | Literal["auto"]
Need = Literal[
    "tower",
    "scorer",
    "sizes",
    "layers",
    "other",
    "sparse",
    "encoded",
    "conv4",
    "conv16",
    "tower4",
    "tower16",
    "halves",
]


class ImageView(Protocol):
    """What a method may read of one encoded image and its questions (numbered i).

    N cells in raster order, D width of the language model, d of the vision side, L tokens of a question.
    """

    @property
    def grid(self) -> tuple[int, int, int]:
        """(T, H, W) cells."""
        ...

    @property
    def total(self) -> int:
        """N."""
        ...

    @property
    def picture(self) -> Tensor:
        """[3, h, w] in [0, 1], the image as the vision tower gets it."""
        ...

    @property
    def tokens(self) -> Tensor:
        """[N, D], as they enter the language model."""
        ...

    @property
    def states(self) -> Tensor:
        """[N, P * d], before the merger or projector, of P patches a cell; needs "tower"."""
        ...

    @property
    def patches(self) -> int:
        """P."""
        ...

    def received(self, layer: int, joined: bool = False) -> Tensor:
        """[N], attention that each cell receives in a layer of the vision tower; needs "tower"."""
        ...

    def keys(self, layer: int, joined: bool = False) -> Tensor:
        """[N, d], keys of each cell in a layer of the vision tower; needs "tower"."""
        ...

    def blind_scores(self) -> Tensor:
        """[N], of the trained query-blind scorer; needs "scorer"."""
        ...

    def question(self, i: int) -> Tensor:
        """[L, D], embeddings of the content tokens of question i."""
        ...

    def evidence(self, i: int) -> Tensor | None:
        """Bool [H, W], the cells that hold the answer to question i; None where unknown."""
        ...

    def possible_evidence(self) -> list[Tensor]:
        """Bool [H, W] each, the evidence of every question that the image could be asked."""
        ...

    def generator(self, method: str, i: int) -> torch.Generator:
        """A generator of the run's seed, the image, the question and the method's name alone."""
        ...


Select = Callable[[Any, int, Any], Reduction]
"""(an `ImageView`, number of the question, a count or "auto") -> Reduction."""


@dataclass(frozen=True)
class Style:
    """How a method is drawn; what is None follows from its kind.

    Attributes:
        colour: any of matplotlib's.
        marker: one of matplotlib's, "" for none.
        size: of the marker, in points.
        width: of the line, in points; 0 for points alone.
    """

    colour: str | None = None
    marker: str | None = None
    size: float | None = None
    width: float | None = None


@dataclass(frozen=True)
class Method:
    """One way to spend a budget of visual tokens, by exactly one of the four rules below (none: all tokens).

    Attributes:
        name: as in result files.
        kind: what it is to the comparison.
        select: chooses cells of the encoded image: (view, question, count or "auto") -> Reduction.
        prepare: makes the prompt itself, with what it encodes for it:
            (view, question, count, "auto" or None, encoded images, stopwatch) -> Ready.
        between_layers: drops visual tokens inside the language model, after its first `layers`:
            (attention [H, L] of the last prompt token, the image's columns, count) -> Reduction.
        resize: shrinks the image before it is encoded: (grid (H, W), count) -> grid (H, W).
        by_question: it chooses anew for each question; else once for an image.
        needs: the watched vision "tower", a trained "scorer", images of any "sizes", the language model's
            "layers" to cut between, an "other" image's question, a tower that encodes some cells alone
            ("sparse") or can be run in two "halves", the whole image "encoded" before `prepare`, or a trained
            compressor.
        auto: it can also choose how many.
        fixed: it always spends the same, whatever the budget of a run: one row, named without a budget.
        mode: whose LoRA it answers with, if there is one: that of its own mode if it is ours; "full", all
            else, is the stock model.
        layers: of the language model that read all tokens, where it drops them `between_layers`.
        variation: makes the method NAME:ARGUMENT of an argument, or raises a ValueError; None: it has none.
        timed: its time is that of a use; of a control that decides for one question and answers another it
            is not.
        contender: among the few that the app sets beside ours.
        label: its name in prose; the name itself if empty.
        paper: where it was published, "" if nowhere.
        style: how it is drawn.

    Raises:
        ValueError: a name that result files or the command line can't hold, an unknown kind, or not exactly
            one rule.
    """

    name: str
    kind: Kind
    select: Select | None = None
    prepare: Callable[..., Any] | None = None
    between_layers: Callable[[Tensor, slice | Tensor, int], Reduction] | None = None
    resize: Callable[[tuple[int, int], int], tuple[int, int]] | None = None
    by_question: bool = False
    needs: frozenset[Need] = frozenset()
    auto: bool = False
    fixed: bool = False
    mode: str = "full"
    layers: int = 2
    variation: Callable[[str], Method] | None = None
    timed: bool = True
    contender: bool = False
    label: str = ""
    paper: str = ""
    style: Style = field(default_factory=Style)

    def __post_init__(self) -> None:
        """Check what everything else relies on."""
        if not self.name or self.name != self.name.strip() or any(sign in self.name for sign in "@,\n"):
            raise ValueError(f"method name {self.name!r} is empty, padded, or has a comma or @: use others")
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r} of {self.name!r} is unknown: use one of {', '.join(KINDS)}")
        rules = (self.select, self.prepare, self.between_layers, self.resize)
        if sum(rule is not None for rule in rules) != (self.kind != "full"):
            raise ValueError(
                f"method {self.name!r} needs exactly one of select, prepare, between_layers and resize "
                '(none for kind "full")'
            )
        if not self.label:
            object.__setattr__(self, "label", self.name)


METHODS: dict[str, Method] = {}
"""By name: kind by kind in the order of `KINDS`, those of a kind as they were registered."""


class Registrable(Protocol):
    """What a table of methods is ordered by."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...


R = TypeVar("R", bound=Registrable)


def add_in_order(table: dict[str, R], method: R) -> R:
    """Add a method to a table, kind by kind in the order of `KINDS`, those of a kind as they came.

    Raises:
        ValueError: the name is taken.
    """
    if method.name in table:
        raise ValueError(f"method {method.name!r} is registered already: give yours another name")
    ordered = sorted([*table.values(), method], key=lambda one: KINDS.index(one.kind))
    table.clear()
    table.update((one.name, one) for one in ordered)
    return method


def register(method: Method) -> Method:
    """Add a method to the table; raises as `add_in_order`."""
    return add_in_order(METHODS, method)


def find_method(name: str, table: Mapping[str, Method] | None = None) -> Method:
    """The method of a name: of the table, or a variation NAME:ARGUMENT of one that stands there.

    Args:
        name: such as "fastv" or "fastv:3".
        table: in place of `METHODS`.

    Raises:
        ValueError: there is none, or the method can't be varied so.
    """
    table = METHODS if table is None else table
    if name in table:
        return table[name]
    first, colon, argument = name.partition(":")
    method = table.get(first)
    if not colon or method is None or method.variation is None:
        raise ValueError(
            f"method {name!r} is unknown{nearest(name, table)}; use some of {', '.join(table)}; "
            "arr-coc --import MODULE eval ... knows those that your MODULE registers"
        )
    return method.variation(argument)
