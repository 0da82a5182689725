"""Mode "saccade": a coarse view of the whole image, and fine cells where the question points.

529 visual tokens whatever the size of the image: 256 of the gestalt and 273 saccades. An image of at most
529 cells stays as it is. The frames of a clip share both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from arr_coc.modes.mode import Mode

if TYPE_CHECKING:
    from arr_coc.core.attending import Budget
    from arr_coc.core.realizing import Cues
    from arr_coc.modes.call import Budgets, Call, Chooser, Prepared

SACCADE_TOKENS = 529
"""Visual tokens of an image: 256 of the gestalt and 273 saccades."""


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Make the coarse view, choose fine cells before they are encoded, encode those alone."""
    from arr_coc.modes.again import look_again
    from arr_coc.modes.part import before_encoding, gestalt_of, without

    sizes = call.of_visuals(chooser.adapter_for(call.mode).layout(call.inputs).sizes)
    note = unspent(sizes, None if call.filling else call.budgets)
    if max(sizes) <= SACCADE_TOKENS:
        return replace(before_encoding(chooser, call, gather, [None] * len(sizes)), note=note)
    frames = call.frames or (1,) * len(sizes)
    small = [size <= SACCADE_TOKENS for size, count in zip(sizes, frames, strict=True) for _ in range(count)]
    gestalt = without(gestalt_of(chooser, call, call.gestalt), small)
    allowed = None if call.filling else call.budgets
    coarse = call.of_visuals(gestalt.counts)
    budgets = [saccades(size, few, allowed) for size, few in zip(sizes, coarse, strict=True)]
    prepared = replace(before_encoding(chooser, call, gather, budgets, gestalt), note=note)
    if len(sizes) > 1 or call.frames or prepared.fallback:
        return prepared
    return replace(prepared, again=partial(look_again, chooser, call, prepared, gestalt))


def unspent(sizes: Sequence[int], budgets: Budgets | None) -> str | None:
    """Why all cells of small images are kept under a smaller budget; None where there is no such image.

    Args:
        sizes: cells N of each image.
        budgets: what the caller allows; None: the caller doesn't say.
    """
    from arr_coc.core.attending import budget_count

    if budgets is None:
        return None
    small = [(size, budgets(size)) for size in sizes if size <= SACCADE_TOKENS]
    whole = [str(size) for size, budget in small if budget == "auto" or budget_count(budget, size) < size]
    if not whole:
        return None
    return (
        f"saccade kept all {', '.join(whole)} cells whatever the budget: images of at most {SACCADE_TOKENS} "
        "cells have no coarse view and are read whole; use sparse or prune for fewer"
    )


def saccades(cells: int, coarse: int, budgets: Budgets | None) -> Budget | None:
    """How many fine cells of an image are kept beside its gestalt; None: all, where there is no gestalt.

    Args:
        cells: N of the image.
        coarse: tokens of its gestalt, 0 where it has none.
        budgets: what the caller allows; None: SACCADE_TOKENS in all.

    Raises:
        ValueError: the gestalt leaves none of SACCADE_TOKENS.
    """
    if not coarse:
        return None
    if budgets is not None:
        return budgets(cells)
    if coarse >= SACCADE_TOKENS:
        raise ValueError(
            f"the gestalt makes {coarse} tokens of an image of {cells} cells, which leaves none of "
            f"{SACCADE_TOKENS} for saccades; use gestalt 'resize', or give a budget of saccades"
        )
    return SACCADE_TOKENS - coarse


def gather(chooser: Chooser, call: Call) -> list[Cues]:
    """What is known of the cells before any is encoded, the coarse view included.

    Raises:
        ValueError: no image is large enough for a coarse view, so nothing is scored.
    """
    from arr_coc.modes.part import unencoded_cues

    most = max(call.of_visuals(chooser.adapter_for(call.mode).layout(call.inputs).sizes))
    if most <= SACCADE_TOKENS:
        raise ValueError(
            f"mode 'saccade' scores nothing of this image: it has {most} cells, and up to {SACCADE_TOKENS} "
            "all are kept; use 'prune' or 'weight'"
        )
    return unencoded_cues(chooser, call)


SACCADE = Mode(
    "saccade",
    help="a coarse view, and fine tokens where the question points",
    encodes="the coarse view, then those cells alone",
    prepare=prepare,
    gather=gather,
    chooses=True,
    before_encoder=True,
    gestalt=True,
    loras=(("partial",), ("coarse", "own")),
)
