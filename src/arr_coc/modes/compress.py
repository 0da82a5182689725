"""Mode "compress": the coarse view of the image alone, whatever the question (COC without ARR)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arr_coc.modes.mode import Mode

if TYPE_CHECKING:
    from arr_coc.modes.call import Call, Chooser, Prepared


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Put the gestalt in the place of each image; tokens that are no cell stay."""
    from arr_coc.modes.part import coarse_alone

    return coarse_alone(chooser, call)


COMPRESS = Mode(
    "compress",
    help="the coarse view alone",
    encodes="the coarse view (`resize`) or all",
    prepare=prepare,
    gestalt=True,
    coarse=True,
    remark="Only a coarse view was read; the cells are those of this view.",
)
