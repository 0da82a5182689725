"""Layouts: how the regions of a picture are laid out within a budget of tokens; sizes alone, no pixels.

crops(regions, ...)       a picture for each region, an overview first where one is wanted
strip(regions, ...)       one picture: the overview above, the regions below it in reading order
shrunk(size, spend)       the whole picture, scaled down
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

from arr_coc.choose.boxes import Box
from arr_coc.pixels.regions import PixelBox
from arr_coc.pixels.rules import Rule

MOST_PICTURES = 9  # of a packed picture
MOST_IN_STRIP = 16  # regions
GAP = 6  # px between the pieces of a strip, and around them
STEPS = 240  # scales that are tried
STEP = 0.97  # from one to the next
KEPT_SHARE = 0.9  # of a side that a provider may not scale below
OVERVIEW_SIDE = 160  # px: the least side of the square that an overview's px would fill

Size = tuple[int, int]
T = TypeVar("T")


@dataclass(frozen=True)
class Fragment:
    """A piece of the original at its place in a packed picture."""

    picture: int
    at: tuple[int, int]  # its top left corner in px of the packed picture
    size: Size  # in px of the packed picture
    origin: PixelBox
    overview: bool = False


@dataclass(frozen=True)
class Plan:
    """Sizes of the pictures to be sent, and what is on them.

    `scale` is px for one of the original where the regions are, as the model reads them; `overview` the same
    of the overview, 0 without one.
    """

    layout: str
    sizes: tuple[Size, ...]
    pieces: tuple[Fragment, ...]
    tokens: int
    scale: float
    overview: float = 0.0


@dataclass(frozen=True)
class Spend:
    """What may be spent: tokens, by a rule, and the highest magnification that is worth something."""

    tokens: int
    rule: Rule
    magnify: float


def cost(sizes: Sequence[Size], rule: Rule) -> int:
    """The tokens of pictures."""
    return sum(rule.tokens(*size) for size in sizes)


def kept(sizes: Sequence[Size], rule: Rule) -> bool:
    """Whether a provider reads pictures at about the size at which they are sent, or larger."""
    pairs = ((rule.seen(*size), size) for size in sizes)
    return all(read >= KEPT_SHARE * sent for one in pairs for read, sent in zip(*one, strict=True))


def reading_scale(size: Size, rule: Rule) -> float:
    """By how much a provider scales a picture of a size before its model reads it."""
    read = rule.seen(*size)
    return min(read[0] / size[0], read[1] / size[1])


def largest(most: float, make: Callable[[float], T | None]) -> T | None:
    """What `make` gives at the largest scale, up to `most`, at which it gives something; None if at none."""
    low, high = 0, STEPS  # steps down from `most`; the answer lies within
    best = None
    while low < high:
        middle = (low + high) // 2
        made = make(most * STEP**middle)
        if made is None:
            low = middle + 1
        else:
            best, high = made, middle
    return best


def scaled(box: PixelBox, scale: float) -> Size:
    """The size in px of a region at a scale, at least one px a side."""
    return max(1, round((box[2] - box[0]) * scale)), max(1, round((box[3] - box[1]) * scale))


def shrunk(size: Size, spend: Spend) -> Plan | None:
    """The whole picture at the largest size that the budget allows, at most its own."""
    whole = (0, 0, *size)

    def make(scale: float) -> Plan | None:
        one = scaled(whole, scale)
        if not kept([one], spend.rule) or (spent := spend.rule.tokens(*one)) > spend.tokens:
            return None
        piece = Fragment(0, (0, 0), one, whole, True)
        factor = one[0] / size[0] * reading_scale(one, spend.rule)
        return Plan("shrunk", (one,), (piece,), spent, factor, factor)

    return largest(1.0, make)


def overview(size: Size, spend: Spend, share: float) -> Plan | None:
    """An overview for a share of the budget; None if that is too little for one to show anything."""
    plan = shrunk(size, replace(spend, tokens=int(share * spend.tokens)))
    if plan is None:
        return None
    read = spend.rule.seen(*plan.sizes[0])
    enough = min(OVERVIEW_SIDE**2, size[0] * size[1])
    return plan if read[0] * read[1] >= enough else None


def crops(regions: Sequence[PixelBox], size: Size, spend: Spend, share: float = 0.0) -> Plan | None:
    """A picture for each region at one scale, after an overview for a share of the budget if that is above 0.

    None if they don't fit.
    """
    above = overview(size, spend, share) if share else None
    if (share and above is None) or len(regions) + (above is not None) > MOST_PICTURES:
        return None
    first = 0 if above is None else 1
    left = spend.tokens - (0 if above is None else above.tokens)

    def make(scale: float) -> Plan | None:
        sizes = [scaled(box, scale) for box in regions]
        if not kept(sizes, spend.rule) or (spent := cost(sizes, spend.rule)) > left:
            return None
        pieces = [
            Fragment(first + number, (0, 0), one, box)
            for number, (one, box) in enumerate(zip(sizes, regions, strict=True))
        ]
        read = min(reading_scale(one, spend.rule) for one in sizes)
        return Plan("crops", tuple(sizes), tuple(pieces), spent, scale * read)

    plan = largest(spend.magnify, make)
    if plan is None or above is None:
        return plan
    return Plan(
        "overview+crops",
        above.sizes + plan.sizes,
        above.pieces + plan.pieces,
        above.tokens + plan.tokens,
        plan.scale,
        above.scale,
    )


def strip(regions: Sequence[PixelBox], size: Size, spend: Spend, share: float = 0.0) -> Plan | None:
    """One picture of an overview, if `share` is above 0, and below it the regions in rows, in reading order.

    None if they don't fit.
    """
    whole = (0, 0, *size)
    above = overview(size, spend, share) if share else None
    if share and above is None:
        return None
    top = [] if above is None else [Fragment(0, (0, 0), above.sizes[0], whole, True)]

    def make(scale: float) -> Plan | None:
        pieces = [Fragment(0, (0, 0), scaled(box, scale), box) for box in regions]
        best: Plan | None = None
        for width in _widths([piece.size[0] for piece in (*top, *pieces)]):
            canvas, laid = _shelves(top, pieces, width)
            if not kept([canvas], spend.rule) or (spent := spend.rule.tokens(*canvas)) > spend.tokens:
                continue
            read = reading_scale(canvas, spend.rule)
            seen_whole = 0.0 if above is None else above.sizes[0][0] / size[0] * read
            plan = Plan("strip", (canvas,), laid, spent, scale * read, seen_whole)
            if best is None or (spent, math.prod(canvas)) < (best.tokens, math.prod(best.sizes[0])):
                best = plan
        return best

    return largest(spend.magnify, make)


def _widths(sides: Sequence[int]) -> list[int]:
    """Widths of a strip that are worth trying: of the widest piece, and of the first pieces side by side."""
    widest = max(sides)
    sums = accumulate(side + GAP for side in sides)
    return sorted({widest, *(total - GAP for total in sums if total - GAP > widest)})


def _shelves(
    top: Sequence[Fragment], pieces: Sequence[Fragment], width: int
) -> tuple[Size, tuple[Fragment, ...]]:
    """Pieces laid in rows of at most `width` px, those of `top` above: the size of all, and each in its place."""
    laid: list[Fragment] = []
    x, y, high, wide = GAP, GAP, 0, 0
    for number, piece in enumerate((*top, *pieces)):
        if x > GAP and (x - GAP + piece.size[0] > width or number == len(top) > 0):
            x, y, high = GAP, y + high + GAP, 0
        laid.append(replace(piece, at=(x, y)))
        x, high = x + piece.size[0] + GAP, max(high, piece.size[1])
        wide = max(wide, x)
    return (wide, y + high + GAP), tuple(laid)


def box_of(piece: Fragment) -> Box:
    """Where a piece lies in its packed picture."""
    (x, y), (width, height) = piece.at, piece.size
    return float(x), float(y), float(x + width), float(y + height)
