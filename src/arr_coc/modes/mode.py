"""What a mode is: one way to spend visual tokens, from the encoder to the language model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arr_coc.guide.deciding import Cues
    from arr_coc.modes.call import Call, Chooser, Prepared


@dataclass(frozen=True)
class Mode:
    """One way to spend visual tokens; one file defines it, one line, `register_mode`, adds it.

    Attributes:
        name: as users write it.
        help: what the language model reads, in a few words for `--help`.
        encodes: what the vision encoder works on, in a few words for tables.
        remark: what must be said beside an answer of this mode, one sentence; "": nothing.
        prepare: everything before the base model is called: encode, decide, drop.
        gather: what scoring reads of each image; None: nothing is scored in this mode.
        chooses: some cells stay and others go.
        before_encoder: cells are chosen before any is encoded, so the vision tower must be able to encode
            some cells alone; in families whose tower can't, the mode runs as `instead`.
        instead: the mode that runs there.
        gestalt: the language model reads a coarse view, made by a compressor that a call may name.
        coarse: the language model reads that alone, so an answer's allocation is of the coarse grid.
        loras: kinds of LoRA at work, each the first that there is of some alternatives (`lora.KINDS`).
    """

    name: str
    help: str
    encodes: str
    prepare: Callable[[Chooser, Call], Prepared]
    gather: Callable[[Chooser, Call], list[Cues]] | None = None
    chooses: bool = False
    before_encoder: bool = False
    instead: str = "prune"
    gestalt: bool = False
    coarse: bool = False
    loras: tuple[tuple[str, ...], ...] = (("own",),)
    remark: str = ""

    @property
    def stock(self) -> bool:
        """Nothing is decided and no LoRA is at work: the base model is called as it is."""
        return self.gather is None and not self.chooses and not self.gestalt

    def kinds(self, available: Collection[str]) -> tuple[str, ...]:
        """The kinds of LoRA at work, of those that are available."""
        picks = (next((kind for kind in some if kind in available), None) for some in self.loras)
        return tuple(kind for kind in picks if kind is not None)
