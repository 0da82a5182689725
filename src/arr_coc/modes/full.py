"""Mode "full": all visual tokens; the stock model, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arr_coc.modes.mode import Mode

if TYPE_CHECKING:
    from arr_coc.modes.call import Call, Chooser, Prepared


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Encode everything and keep it."""
    from arr_coc.modes.whole import everything

    return everything(chooser, call)


FULL = Mode(
    "full",
    help="all tokens",
    encodes="all",
    prepare=prepare,
    loras=(),
    remark="Nothing was chosen: the stock model, which reads every token.",
)
