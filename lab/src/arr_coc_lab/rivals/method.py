"""The table of methods: every way to spend a budget of visual tokens, registered by its own file.

register(Method("divprune", "rival", select=lambda view, i, k: divprune(view.tokens, k)))
METHODS["divprune"].select(view, 0, 64) -> Reduction(keep [64], tokens or None)
find_method("fastv:3")                    a variation NAME:ARGUMENT, made when asked for
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from arr_coc.files.validation import nearest
from arr_coc_lab.results.kinds import KINDS, Kind
from arr_coc_lab.results.styles import OF_OTHERS, STYLES, Style
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
    "tower4",
    "tower16",
    "halves",
    "turns",
]


class ImageView(Protocol):
    """What a method may read of one encoded image and its questions (numbered i).

    N cells in raster order, D width of the language model, d of the vision side, L tokens of a question, P
    patches a cell. `received`, `keys`, `states` and `patches` need "tower", `blind_scores` needs "scorer".
    """

    @property
    def grid(self) -> tuple[int, int, int]: ...  # (T, H, W) cells

    @property
    def total(self) -> int: ...  # N

    @property
    def picture(self) -> Tensor: ...  # [3, h, w] in [0, 1], the image as the vision tower gets it

    @property
    def tokens(self) -> Tensor: ...  # [N, D], as they enter the language model

    @property
    def states(self) -> Tensor: ...  # [N, P * d], before the merger or projector

    @property
    def patches(self) -> int: ...  # P

    def received(self, layer: int, joined: bool = False) -> Tensor: ...  # [N], attention received

    def keys(self, layer: int, joined: bool = False) -> Tensor: ...  # [N, d], the tower's

    def blind_scores(self) -> Tensor: ...  # [N]

    def question(self, i: int) -> Tensor: ...  # [L, D], embeddings of the content tokens of question i

    def evidence(self, i: int) -> Tensor | None: ...  # bool [H, W]; None where unknown

    def possible_evidence(self) -> list[Tensor]: ...  # of all questions of the image

    def generator(self, method: str, i: int) -> torch.Generator: ...  # of run, image, question, method


Select = Callable[[Any, int, Any], Reduction]
"""(an `ImageView`, number of the question, a count or "auto") -> Reduction."""


@dataclass(frozen=True)
class Method:
    """One way to spend a budget of visual tokens, by exactly one of four rules (none: all tokens).

    ValueError for a name that result files can't hold, an unknown kind, or not exactly one rule.
    """

    name: str  # in result files
    kind: Kind  # its role in the comparison
    # chooses cells of the encoded image: (view, question, count or "auto") -> Reduction
    select: Select | None = None
    # makes the prompt itself, with what it encodes for it: (view, question, count, "auto" or None,
    # encoded images, stopwatch) -> Ready
    prepare: Callable[..., Any] | None = None
    # drops visual tokens inside the language model, after its first `layers`: (attention [H, L] of the
    # last prompt token, the image's columns, count) -> Reduction
    between_layers: Callable[[Tensor, slice | Tensor, int], Reduction] | None = None
    # shrinks the image before it is encoded: (grid (H, W), count) -> grid (H, W)
    resize: Callable[[tuple[int, int], int], tuple[int, int]] | None = None
    by_question: bool = False  # it chooses anew for each question; else once for an image
    # the recorded vision "tower", a trained "scorer", images of any "sizes", the language model's
    # "layers" to cut between, an "other" image's question, a tower that encodes some cells alone
    # ("sparse") or runs in two "halves", a question before it about the same image ("turns"), the entire
    # image "encoded" before `prepare`, or a compressor
    needs: frozenset[Need] = frozenset()
    auto: bool = False  # it can also choose how many
    fixed: bool = False  # its cost ignores the budget: one row, named without a budget
    mode: str = "full"  # whose LoRA it answers with, if there is one; "full" is the stock model
    layers: int = 2  # of the language model that read all tokens before `between_layers`
    # makes NAME:ARGUMENT from an argument, or raises ValueError
    variation: Callable[[str], Method] | None = None
    timed: bool = True  # its time is that of a use; not so of a control that decides by another question
    contender: bool = False  # the app compares it with ours
    label: str = ""  # its name in prose; the name itself if empty
    paper: str = ""  # where it was published
    style: Style = field(default_factory=Style)  # how it is drawn; those of `STYLES` have theirs there

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.strip() or any(sign in self.name for sign in "@,\n"):
            raise ValueError(f"method name {self.name!r} is empty, padded, or has a comma or @: use others")
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r} of {self.name!r} is unknown: use one of {', '.join(KINDS)}")
        rules = (self.select, self.prepare, self.between_layers, self.resize)
        # one rule, or none of kind "full"
        if sum(rule is not None for rule in rules) != (self.kind != "full"):
            raise ValueError(
                f"method {self.name!r} needs exactly one of select, prepare, between_layers and resize "
                '(none for kind "full")'
            )
        if not self.label:
            object.__setattr__(self, "label", self.name)
        if self.style == Style():
            object.__setattr__(self, "style", STYLES.get(self.name, self.style))


METHODS: dict[str, Method] = {}  # in the order of `KINDS`, then of registration


class Registrable(Protocol):
    """An entry of a table of methods."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...


R = TypeVar("R", bound=Registrable)


def add_in_order(table: dict[str, R], method: R) -> R:
    """Add a method to a table, in the order of `KINDS`, then of registration; ValueError for a taken name."""
    if method.name in table:
        raise ValueError(f"method {method.name!r} is registered already: give yours another name")
    ordered = sorted([*table.values(), method], key=lambda one: KINDS.index(one.kind))
    table.clear()
    table.update((one.name, one) for one in ordered)
    return method


def register(method: Method) -> Method:
    """Add a method to `METHODS`, and its style to `STYLES`; raises as `add_in_order`."""
    add_in_order(METHODS, method)
    STYLES[method.name] = method.style
    if "other" in method.needs:
        OF_OTHERS.add(method.name)
    return method


def find_method(name: str, table: Mapping[str, Method] | None = None) -> Method:
    """Return the method of a name such as "fastv" or the variation "fastv:3"; ValueError if there is none."""
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
