"""Notes: what an answer says of arguments that were not followed to the letter.

joined("sparse ran as prune: ...", None, "gestalt had no effect ...") -> one text, or None
remarks(prepared, own, budget, gestalt, named)                        -> one text, or None
too_large(prepared, taught, kinds)                                    -> one text, or None
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from arr_coc.modes import Mode, find_mode
from arr_coc.seam.lora import COARSE

NO_NUMBERS = (
    "the model computed NaN in place of numbers, so its answer means nothing: load whole weights again, or "
    "with dtype 'float32'"
)
"""What an answer says whose model, or weights, hold NaN."""

if TYPE_CHECKING:
    from arr_coc.choose.budget import Budget
    from arr_coc.modes.call import Prepared


def joined(*notes: str | None) -> str | None:
    """The notes that there are as one text; None where there is none."""
    return "; ".join(note for note in notes if note) or None


def remarks(
    prepared: Prepared, own: Budget, budget: Budget | None, gestalt: str | None, named: bool = False
) -> str | None:
    """What became of a call's arguments.

    Args:
        prepared: the call.
        own: the model's budget.
        budget: that of the call, None: it named none.
        gestalt: the compressor that the call named, None: it named none.
        named: the call named the cells that are kept.
    """
    from arr_coc.choose.budget import DEFAULT_BUDGET

    if prepared.fallback:
        return "choosing cells failed, so all were kept: the log says why"
    mode = find_mode(prepared.mode)
    allowed = own if budget is None else budget
    of_cells = joined(*dict.fromkeys(allocation.note for allocation in prepared.allocations))
    if named:
        no_budget = None if budget is None else "budget had no effect: the cells to keep are named"
        return joined(no_budget, unused(mode, None, gestalt), of_cells)
    if budget is None and own == DEFAULT_BUDGET:  # cut to small images without a word: nobody asked for it
        return joined(unused(mode, None, gestalt), of_cells)
    too_much = cut(allowed, prepared.cells) if mode.chooses else None
    return joined(unused(mode, budget, gestalt), too_much, of_cells)


def unused(mode: Mode, budget: Budget | None, gestalt: str | None) -> str | None:
    """Which of the arguments that a call named have no effect in a mode; None: all have one."""
    names = [
        name
        for name, value, used in (("budget", budget, mode.chooses), ("gestalt", gestalt, mode.gestalt))
        if value is not None and not used
    ]
    return f"{' and '.join(names)} had no effect in mode {mode.name}" if names else None


def cut(budget: Budget, sizes: list[int]) -> str | None:
    """Which images, of so many cells each, are smaller than a budget; None: none is."""
    from arr_coc.choose.budget import parse_budget

    count = parse_budget(budget)
    small = [str(size) for size in sizes if isinstance(count, int) and size < count]
    if not small:
        return None
    return f"budget {count} is more than the image has: all {', '.join(small)} cells were kept"


def too_large(prepared: Prepared, taught: int, kinds: Collection[str]) -> str | None:
    """Which images have more cells than a model was taught to answer about; None: none has.

    Modes in which it reads a coarse view alone, or one that a LoRA has taught it, show it no such image.

    Args:
        prepared: the call.
        taught: cells of the largest images that it was taught.
        kinds: of the LoRAs that were learned for it.
    """
    mode = find_mode(prepared.mode)
    sizes = [f"{size:,}" for size in prepared.cells if size > taught]
    if not sizes or mode.coarse or COARSE in mode.kinds(kinds):
        return None
    return (
        f"this model was taught on pictures of at most {taught:,} cells and this one has "
        f"{', '.join(sizes)}, so its answer may well be wrong: shrink the picture, or cut out a part of it"
    )
