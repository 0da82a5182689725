"""Mode "saccade": a coarse view of the whole image, and fine cells where the question points.

529 visual tokens whatever the size of the image: 256 of the gestalt and 273 saccades. An image of at most
529 cells stays as it is. The frames of a clip share both.

In a family whose tower reads one square view (LLaVA 1.5: 576 tokens), that view is the gestalt, and the 273
are cells of finer crops of the picture; a picture that has nothing finer to show stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from arr_coc.modes.mode import Mode

if TYPE_CHECKING:
    from arr_coc.choose.attending import Budget
    from arr_coc.guide.deciding import Cues
    from arr_coc.modes.call import Budgets, Call, Chooser, Prepared
    from arr_coc.seam import FamilyAdapter

SACCADE_TOKENS = 529
"""Visual tokens of an image: 256 of the gestalt and 273 saccades."""


def prepare(chooser: Chooser, call: Call) -> Prepared:
    """Make the coarse view, choose fine cells before they are encoded, encode those alone."""
    from arr_coc.modes.again import look_again
    from arr_coc.modes.notes import joined
    from arr_coc.modes.part import before_encoding, without
    from arr_coc.modes.whole import gestalt_of

    adapter = chooser.adapter_for(call.mode)
    sizes, most = call.of_visuals(adapter.layout(call.inputs).sizes), most_whole(adapter)
    note = unspent(sizes, None if call.filling or call.keep else call.budgets, most)
    if max(sizes) <= most:
        return replace(before_encoding(chooser, call, gather, [None] * len(sizes)), note=note)
    frames = call.frames or (1,) * len(sizes)
    small = [size <= most for size, count in zip(sizes, frames, strict=True) for _ in range(count)]
    gestalt = without(gestalt_of(chooser, call, call.gestalt), small)
    allowed = None if call.filling and adapter.encodes != "crops" else call.budgets
    coarse = call.of_visuals(gestalt.counts)
    budgets = [saccades(size, few, allowed) for size, few in zip(sizes, coarse, strict=True)]
    prepared = before_encoding(chooser, call, gather, budgets, gestalt)
    prepared = replace(prepared, note=joined(note, prepared.note))
    if len(sizes) > 1 or call.frames or prepared.fallback:
        return prepared
    return replace(prepared, again=partial(look_again, chooser, call, prepared, gestalt))


def most_whole(adapter: FamilyAdapter) -> int:
    """The most cells of an image that has no coarse view; with crops, those of the view of the whole."""
    return adapter.view_cells if adapter.encodes == "crops" else SACCADE_TOKENS


def unspent(sizes: Sequence[int], budgets: Budgets | None, most: int) -> str | None:
    """Why all cells of small images are kept under a smaller budget; None where there is no such image.

    Args:
        sizes: cells N of each image.
        budgets: what the caller allows; None: the caller doesn't say.
        most: cells of the largest images that are read whole.
    """
    from arr_coc.choose.budget import budget_count

    if budgets is None:
        return None
    small = [(size, budgets(size)) for size in sizes if size <= most]
    whole = [str(size) for size, budget in small if budget == "auto" or budget_count(budget, size) < size]
    if not whole:
        return None
    return (
        f"saccade kept all {', '.join(whole)} cells whatever the budget: images of at most {most} "
        "cells have no coarse view and are read whole; use sparse or prune for fewer"
    )


def saccades(cells: int, coarse: int, budgets: Budgets | None) -> Budget | None:
    """How many fine cells of an image are kept beside its gestalt; None: all, where there is no gestalt.

    Args:
        cells: N of the image.
        coarse: tokens of its gestalt, 0 where it has none.
        budgets: what the caller allows beside it; None: SACCADE_TOKENS in all.

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

    adapter = chooser.adapter_for(call.mode)
    cells, most = max(call.of_visuals(adapter.layout(call.inputs).sizes)), most_whole(adapter)
    if cells <= most:
        raise ValueError(
            f"mode 'saccade' scores nothing of this image: it has {cells} cells, and up to {most} all are "
            "kept; use 'prune' or 'weight'"
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
