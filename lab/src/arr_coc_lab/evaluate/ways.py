"""Names of the ways to a first token that `evaluate.speed` compares.

read_way("sparse@64")             WayName("sparse", mode="sparse", budget=64)
read_way("compress tower4")       mode "compress" with another gestalt than the usual one
read_way("sparse gaze@273")       as for a checkpoint without a trained allocator
read_way("stock"), read_way("visionzip@64")
"""

from __future__ import annotations

from typing import NamedTuple

from arr_coc.choose.budget import Budget, parse_budget
from arr_coc.modes import MODES
from arr_coc.seam.gestalt import COMPRESSORS
from arr_coc_lab.evaluate.methods import METHODS
from arr_coc_lab.rivals.method import Method, find_method

STOCK, GAZE = "stock", " gaze"


class WayName(NamedTuple):
    """A parsed name: `mode` of ours (None for stock and rivals), its `gestalt` (None: the usual one) and
    budget.

    `gaze` takes relevance from the base model's attention, as without a trained allocator and guide.
    """

    name: str
    mode: str | None = None
    gestalt: str | None = None
    gaze: bool = False
    budget: Budget | None = None


def read_way(way: str) -> WayName:
    """Parse the name of a way; no model is needed.

    Raises:
        ValueError: an unknown name or a bad budget.
    """
    name, _, text = way.partition("@")
    gaze = name.endswith(GAZE)
    mode, _, gestalt = name.removesuffix(GAZE).partition(" ")
    budget = parse_budget(text) if text else None
    if name == STOCK:
        return WayName(name, budget=budget)
    if mode in MODES and (not gestalt or (MODES[mode].gestalt and gestalt in COMPRESSORS)):
        return WayName(name, mode, gestalt or None, gaze, budget)
    rivals = rivals_on_stock()
    try:
        find_method(name, rivals)
    except ValueError as error:
        raise ValueError(
            f"way {way!r} is unknown; use {STOCK}, a mode ({', '.join(MODES)}) alone or with a budget "
            f"(prune@64) or a gestalt (compress pool4), or one of {', '.join(rivals)} with a count "
            "(visionzip@64)"
        ) from error
    if not isinstance(budget, int):
        raise ValueError(f"way {way!r} needs a count of tokens: write {name}@273")
    return WayName(name, budget=budget)


def rivals_on_stock() -> dict[str, Method]:
    """Rivals and nulls that run on the stock model, by name."""
    return {
        name: method
        for name, method in METHODS.items()
        if method.kind in ("rival", "null")
        and method.mode == "full"
        and (method.select is not None or method.between_layers is not None)
    }
