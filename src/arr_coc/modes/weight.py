"""Mode "weight": all N tokens, each scaled by its relevance; no token is dropped. A diagnostic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arr_coc.modes.mode import Mode
from arr_coc.modes.prune import gather

if TYPE_CHECKING:
    from arr_coc.modes.call import Call, Chooser, Prepared


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Encode everything and scale each cell by its relevance."""
    from arr_coc.modes.whole import after_encoding

    return after_encoding(chooser, call, gather, scale=True)


WEIGHT = Mode(
    "weight",
    help="all tokens, scaled by relevance",
    encodes="all",
    prepare=prepare,
    gather=gather,
    remark="No token was dropped: all were scaled by their relevance.",
)
