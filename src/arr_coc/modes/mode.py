"""The table of modes, a row each: what the encoder works on, what the language model reads.

    find_mode("sparse").help
    register_mode(Mode("centre", help="the middle", encodes="all", chooses=True, score=nearness))

Importing this loads neither torch nor transformers. `modes.route` carries the modes out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    OwnScores = Callable[[list[Tensor], str, tuple[int, int, int]], Tensor]


@dataclass(frozen=True)
class Mode:
    """One way to spend visual tokens, from the vision encoder to the language model.

    Attributes:
        name: what users write.
        help: what the language model reads, for `--help`.
        encodes: what the vision encoder works on, for tables.
        remark: a sentence beside each answer of this mode; "": none.
        scores: what the layer scores: "encoded", the encoder's tokens of all cells; "pixels", what is known
            before encoding; "", nothing.
        score: a function in place of the layer, `score(pictures, question, (T, H, W))` -> float [T, H, W] in
            any range, of which the largest are kept; it gets T pictures [3, h, w] in [0, 1], and "" as the
            question if there is no tokenizer.
        chooses: whether some cells are dropped.
        scales: whether all cells stay, each multiplied by its relevance.
        instead: the mode of families whose vision tower can't encode some cells alone, if `scores` is
            "pixels".
        gestalt: whether the language model reads a coarse view, by a compressor that a call may name.
        coarse: whether it reads that alone; then the answer's allocation is of the coarse grid.
        loras: kinds of LoRA in use, each the first available of some alternatives (`lora.KINDS`).
        before_encoder: whether cells are chosen before any is encoded; follows from `scores`.
        stock: whether the base model is called as it is, without decision or LoRA; follows from the rest.
    """

    name: str
    help: str
    encodes: str
    scores: Literal["", "encoded", "pixels"] = ""
    score: OwnScores | None = None
    chooses: bool = False
    scales: bool = False
    instead: str = "prune"
    gestalt: bool = False
    coarse: bool = False
    loras: tuple[tuple[str, ...], ...] = (("own",),)
    remark: str = ""
    before_encoder: bool = field(init=False, repr=False)
    stock: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "before_encoder", self.scores == "pixels")
        decides = self.scores or self.chooses or self.scales or self.gestalt
        object.__setattr__(self, "stock", not decides)

    def kinds(self, available: Collection[str]) -> tuple[str, ...]:
        """Return the kinds of LoRA that this mode uses, of those that are available."""
        picks = (next((kind for kind in some if kind in available), None) for some in self.loras)
        return tuple(kind for kind in picks if kind is not None)


FULL = Mode(
    "full",
    help="all tokens",
    encodes="all",
    loras=(),
    remark="Nothing was chosen: the stock model, which reads every token.",
)
PRUNE = Mode(
    "prune",
    help="those that matter, after all are encoded",
    encodes="all, then K are gathered",
    scores="encoded",
    chooses=True,
)
SPARSE = Mode(
    "sparse",
    help="those that matter, encoded alone",
    encodes="those K alone",
    scores="pixels",
    chooses=True,
    loras=(("partial",), ("own",)),
)
SACCADE = Mode(
    "saccade",
    help="a coarse view, and fine tokens where the question points",
    encodes="the coarse view, then those cells alone",
    scores="pixels",
    chooses=True,
    gestalt=True,
    loras=(("partial",), ("coarse", "own")),
)
COMPRESS = Mode(
    "compress",
    help="the coarse view alone",
    encodes="the coarse view (`resize`) or all",
    gestalt=True,
    coarse=True,
    remark="Only a coarse view was read; the cells are those of this view.",
)
WEIGHT = Mode(
    "weight",
    help="all tokens, scaled by relevance",
    encodes="all",
    scores="encoded",
    scales=True,
    remark="No token was dropped: all were scaled by their relevance.",
)

MODES: dict[str, Mode] = {one.name: one for one in (FULL, PRUNE, SPARSE, SACCADE, COMPRESS, WEIGHT)}
"""All modes by name, in the order of help and tables."""


def register_mode(mode: Mode) -> None:
    """Add a mode to the table; from then on its name works wherever a mode is named.

    Raises:
        ValueError: the name is empty, padded or taken by another mode.
    """
    if not mode.name or mode.name != mode.name.strip():
        raise ValueError(f"mode name {mode.name!r} is empty or padded: use a word")
    if MODES.get(mode.name, mode) != mode:
        raise ValueError(f"mode {mode.name!r} is registered already: give yours another name")
    MODES[mode.name] = mode


def find_mode(name: str) -> Mode:
    """Return the mode with this name; raise ValueError for an unknown one."""
    if not isinstance(name, str) or name not in MODES:
        raise ValueError(
            f"mode {name!r} is unknown; use one of {', '.join(MODES)}, or import the module that registers "
            "your own (arr-coc --import MODULE ...)"
        )
    return MODES[name]
