"""Mode "prune": everything is encoded, then the cells that matter are gathered, K of N."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arr_coc.modes.mode import Mode

if TYPE_CHECKING:
    from arr_coc.guide.deciding import Cues
    from arr_coc.modes.call import Call, Chooser, Prepared


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Encode everything, choose by the encoded cells, gather the chosen ones."""
    from arr_coc.modes.whole import after_encoding

    return after_encoding(chooser, call, gather, scale=False)


def gather(chooser: Chooser, call: Call) -> list[Cues]:
    """What is known of the cells once they are encoded."""
    from arr_coc.modes.whole import encoded_cues

    return encoded_cues(chooser, call)


PRUNE = Mode(
    "prune",
    help="those that matter, after all are encoded",
    encodes="all, then K are gathered",
    prepare=prepare,
    gather=gather,
    chooses=True,
)
