"""Mode "sparse": the cells that matter are chosen from pixels, and those K alone are encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arr_coc.modes.mode import Mode

if TYPE_CHECKING:
    from arr_coc.guide.deciding import Cues
    from arr_coc.modes.call import Call, Chooser, Prepared


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Choose before the encoder, encode the chosen cells alone."""
    from arr_coc.modes.part import before_encoding

    sizes = call.of_visuals(chooser.adapter_for(call.mode).layout(call.inputs).sizes)
    return before_encoding(chooser, call, gather, [call.budgets(count) for count in sizes])


def gather(chooser: Chooser, call: Call) -> list[Cues]:
    """What is known of the cells before any is encoded."""
    from arr_coc.modes.part import unencoded_cues

    return unencoded_cues(chooser, call)


SPARSE = Mode(
    "sparse",
    help="those that matter, encoded alone",
    encodes="those K alone",
    prepare=prepare,
    gather=gather,
    chooses=True,
    before_encoder=True,
    loras=(("partial",), ("own",)),
)
