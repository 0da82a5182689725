"""Notes shown beside an answer: which arguments had no effect, and what became of a budget."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from arr_coc.choose.allocation import joined_notes
from arr_coc.choose.budget import COVERAGE, DEFAULT_BUDGET, Budget, budget_count, parse_budget
from arr_coc.modes.call import Call, Chooser, Prepared
from arr_coc.modes.magnify import tokens_of
from arr_coc.modes.mode import MODES, Mode
from arr_coc.seam.lora import COARSE


def joined(*notes: str | None) -> str | None:
    """Join the notes that aren't None into one text; None if all are."""
    return "; ".join(note for note in notes if note) or None


def note_of_call(
    chooser: Chooser, call: Call, prepared: Prepared, mode: Mode, substituted: str | None, own_view: bool
) -> str | None:
    """Return the note of a call that `mode` carried out; `substituted` says why, if another was named."""
    unmagnified = call.magnify != 1 and not mode.before_encoder
    return joined(
        substituted,
        prepared.note,
        f"gestalt {call.gestalt} had no effect: the coarse view is the model's own" if own_view else None,
        f"magnify had no effect in mode {mode.name}" if unmagnified else None,
        lowered_magnify(call, prepared),
        remarks(chooser, call, prepared),
    )


def lowered_magnify(call: Call, prepared: Prepared) -> str | None:
    """Return a note on images whose budget is below the cost of one cell at the named scale, or None."""
    if call.keep or isinstance(call.magnify, str) or call.magnify == 1:
        return None
    scales = [
        f"{scale:.3g}"
        for scale, one in zip(prepared.magnified, prepared.allocations, strict=False)  # none: not magnified
        if scale < call.magnify and (tokens_of(one.budget, one.total) or math.inf) < call.magnify**2
    ]
    if not scales:
        return None
    cost = math.ceil(call.magnify**2)
    return f"magnify was lowered to {', '.join(scales)}: one cell at {call.magnify:g} takes {cost} tokens"


def remarks(chooser: Chooser, call: Call, prepared: Prepared) -> str | None:
    """Return a note on arguments without effect (budget, gestalt, named cells); None if all had one."""
    if prepared.fallback:
        return "choosing cells failed, so all were kept: the log says why"
    mode, gestalt = MODES[prepared.mode], call.named_gestalt
    of_cells = joined_notes(prepared.allocations)
    if call.keep:
        no_budget = None if call.budget is None else "budget had no effect: the cells to keep are named"
        return joined(no_budget, unused(mode, None, gestalt), of_cells)
    if call.budget is None and chooser.budget == DEFAULT_BUDGET:  # the default is cut to small images
        return joined(unused(mode, None, gestalt), of_cells)  # without a note: nobody named it
    allowed = chooser.budget if call.budget is None else call.budget
    chooses = mode.chooses and not prepared.magnified
    too_much = budget_exceeds_image(allowed, prepared.cells) if chooses else None
    return joined(unused(mode, call.budget, gestalt), too_much, of_cells)


def unused(mode: Mode, budget: Budget | None, gestalt: bool) -> str | None:
    """Return a note on the named arguments that a mode ignores; None if it uses all of them."""
    names = []
    if budget is not None and not mode.chooses:
        names.append("coverage" if str(budget).strip().lower().startswith(COVERAGE) else "budget")
    if gestalt and not mode.gestalt:
        names.append("gestalt")
    return f"{' and '.join(names)} had no effect in mode {mode.name}" if names else None


def budget_exceeds_image(budget: Budget, sizes: list[int]) -> str | None:
    """Return a note on images that have fewer cells than the budget; None if there are none."""
    count = parse_budget(budget)
    small = [str(size) for size in sizes if isinstance(count, int) and size < count]
    if not small:
        return None
    return f"budget {count} is more than the image has: all {', '.join(small)} cells were kept"


def too_large(prepared: Prepared, trained: int, kinds: Collection[str]) -> str | None:
    """Return a note on images with more cells than the model was trained on (`trained`), or None.

    Modes with a coarse view, alone or with a LoRA for it (of the available `kinds`), need no note.
    """
    sizes = [f"{size:,}" for size in prepared.cells if size > trained]
    if not sizes:
        return None
    mode = MODES[prepared.mode]
    if mode.coarse or COARSE in mode.kinds(kinds):
        return None
    return (
        f"this model was taught on pictures of at most {trained:,} cells and this one has "
        f"{', '.join(sizes)}, so its answer may well be wrong: shrink the picture, or cut out a part of it"
    )


def small_images(sizes: Sequence[int], budgets: Any, most: int) -> str | None:
    """Return a note on images of at most `most` cells, read whole despite a smaller budget, or None."""
    if budgets is None:
        return None
    small = [(size, budgets(size)) for size in sizes if size <= most]
    every = [
        str(size) for size, budget in small if isinstance(budget, str) or budget_count(budget, size) < size
    ]
    if not every:
        return None
    return (
        f"saccade kept all {', '.join(every)} cells whatever the budget: images of at most {most} "
        "cells have no coarse view and are read whole; use sparse or prune for fewer"
    )
