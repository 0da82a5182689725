"""Plan how regions of a picture are laid out within a budget of tokens; sizes alone, no pixels.

crops(regions, ...)       a picture for each region, an overview first where one is wanted
strip(regions, ...)       one picture: the overview above, the regions below it in reading order
shrunk(size, spend)       the whole picture, scaled down
estimated(regions, ...)   the scale at which regions would be laid out, without laying them out
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

from arr_coc.choose.boxes import Box
from arr_coc.pixels.lines import PixelBox
from arr_coc.pixels.rules import Rule

MAX_PICTURES = 9  # of a packed picture
MAX_IN_STRIP = 16  # regions
USUAL_SIDE = 1024  # px of a picture by which a rule's tokens are estimated
WIDTHS = 4  # of a strip that are priced, those of the smallest area first
GAP = 6  # px between the pieces of a strip, and around them
STEPS = 240  # scales that are tried
STEP = 0.97  # from one to the next
KEPT_SHARE = 0.9  # of a side that a provider may not scale below
MIN_SIDE = 28  # px of a picture that is sent; Qwen's processors refuse thinner ones
OVERVIEW_SIDE = 160  # px: the least side of the square that an overview's px would fill

Size = tuple[int, int]
T = TypeVar("T")


@dataclass(frozen=True)
class Fragment:
    """A piece of the original, and its place in a packed picture."""

    picture: int
    at: tuple[int, int]  # its top left corner in px of the packed picture
    size: Size  # in px of the packed picture
    origin: PixelBox
    overview: bool = False


@dataclass(frozen=True)
class Plan:
    """Sizes of the pictures to be sent, and what is on them.

    `scale` is the magnification of the regions as the model reads them: its px for each px of the original.
    `overview` is that of the overview, 0 without one.
    """

    layout: str
    sizes: tuple[Size, ...]
    pieces: tuple[Fragment, ...]
    tokens: int
    scale: float
    overview: float = 0.0


@dataclass(frozen=True)
class Spend:
    """The limits of a packing: tokens, the rule that counts them, and the highest useful magnification."""

    tokens: int
    rule: Rule
    magnify: float

    @cached_property
    def px(self) -> float:
        """The px that a token of a usual picture stands for."""
        read, tokens = self.rule.read(USUAL_SIDE, USUAL_SIDE)
        return math.prod(read) / tokens


def priced(sizes: Sequence[Size], rule: Rule) -> tuple[int, float] | None:
    """Return the tokens of pictures, and the smallest factor by which the provider scales one of them.

    If it reads one at much less than the size at which it is sent, return None.
    """
    tokens, least = 0, math.inf
    for width, height in sizes:
        (across, down), count = rule.read(width, height)
        factor = min(across / width, down / height)
        if factor < KEPT_SHARE:
            return None
        tokens, least = tokens + count, min(least, factor)
    return tokens, least


def reading_scale(size: Size, rule: Rule) -> float:
    """Return by how much a provider scales a picture of a size before its model reads it."""
    read = rule.seen(*size)
    return min(read[0] / size[0], read[1] / size[1])


def largest(most: float, make: Callable[[float], T | None], guess: float) -> T | None:
    """Return what `make` gives at the largest scale, up to `most`, at which it isn't None; else None.

    The search starts from `guess` in steps that double, then goes on between the last two.
    """
    made: dict[int, T | None] = {}

    def at(step: int) -> T | None:
        if step not in made:
            made[step] = make(most * STEP**step)
        return made[step]

    start = min(STEPS - 1, max(0, round(math.log(guess / most) / math.log(STEP))))
    low, high, stride = -1, STEPS, 1  # nothing at `low` or above it, something at `high`
    if at(start) is None:
        low = start
        while high == STEPS and low < STEPS - 1:
            step = min(STEPS - 1, low + stride)
            low, high = (step, high) if at(step) is None else (low, step)
            stride *= 2
    else:
        high = start
        while low < 0 and high > 0:
            step = max(0, high - stride)
            low, high = (step, high) if at(step) is None else (low, step)
            stride *= 2
    if high == STEPS:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) is None else (low, middle)
    return at(high)


def estimated(regions: Sequence[PixelBox], spend: Spend, tokens: int, frame: float) -> float:
    """Estimate the scale at which regions cost some tokens, with `frame` px for the frame of each side."""
    area = sum((x1 - x0 + frame) * (y1 - y0 + frame) for x0, y0, x1, y1 in regions)
    return min(spend.magnify, math.sqrt(max(1, tokens) * spend.px / max(1.0, area)))


def _scaled(box: PixelBox, scale: float) -> Size:
    """Return the size in px of a region at a scale, at least one px a side."""
    return max(1, round((box[2] - box[0]) * scale)), max(1, round((box[3] - box[1]) * scale))


def paper_size(size: Size, rule: Rule) -> Size:
    """Return the size in px of the picture that a piece is put on alone.

    White is added to a thin piece as far as it costs no token more.
    """
    least = min(MIN_SIDE, rule.patch)
    return max(least, size[0]), max(least, size[1])


def shrunk(size: Size, spend: Spend) -> Plan | None:
    """Plan the whole picture as large as the budget and its own size allow; None if it doesn't fit."""
    whole = (0, 0, *size)

    def make(scale: float) -> Plan | None:
        one = _scaled(whole, scale)
        price = priced([one], spend.rule)
        if price is None or price[0] > spend.tokens:
            return None
        piece = Fragment(0, (0, 0), one, whole, True)
        factor = one[0] / size[0] * price[1]
        return Plan("shrunk", (one,), (piece,), price[0], factor, factor)

    return largest(1.0, make, min(1.0, estimated([whole], spend, spend.tokens, 0)))


def overview(size: Size, spend: Spend, share: float) -> Plan | None:
    """Plan an overview for a share of the budget; None if that is too little to show anything."""
    plan = shrunk(size, replace(spend, tokens=int(share * spend.tokens)))
    if plan is None:
        return None
    return plan if math.prod(plan.sizes[0]) >= min(OVERVIEW_SIDE**2, math.prod(size)) else None


def crops(regions: Sequence[PixelBox], spend: Spend, above: Plan | None = None) -> Plan | None:
    """Plan a picture for each region at one scale, after an overview if given; None if they don't fit.

    Without regions the result is None, too.
    """
    first = 0 if above is None else 1
    if not regions or len(regions) + first > MAX_PICTURES:
        return None
    left = spend.tokens - (0 if above is None else above.tokens)

    def make(scale: float) -> Plan | None:
        sides = [_scaled(box, scale) for box in regions]
        sizes = tuple(paper_size(one, spend.rule) for one in sides)
        price = priced(sizes, spend.rule)
        if price is None or price[0] > left:
            return None
        pieces = [
            Fragment(first + number, (0, 0), one, box)
            for number, (one, box) in enumerate(zip(sides, regions, strict=True))
        ]
        return Plan("crops", sizes, tuple(pieces), price[0], scale * price[1])

    plan = largest(spend.magnify, make, estimated(regions, spend, left, spend.rule.patch / 2))
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


def strip(regions: Sequence[PixelBox], size: Size, spend: Spend, above: Plan | None = None) -> Plan | None:
    """Plan one picture: an overview, if given, and below it the regions in rows, in reading order.

    `size` is that of the picture. If the regions don't fit, the result is None.
    """
    top = [] if above is None else [above.sizes[0]]

    def make(scale: float) -> Plan | None:
        sides = [*top, *(_scaled(box, scale) for box in regions)]
        laid = [_shelves(sides, len(top), width) for width in _widths([side[0] for side in sides])]
        laid.sort(key=lambda one: math.prod(one[0]))
        best: tuple[int, float, int] | None = None
        for number, (canvas, _) in enumerate(laid[:WIDTHS]):
            price = priced([canvas], spend.rule)
            if price is not None and price[0] <= spend.tokens and (best is None or price[0] < best[0]):
                best = (*price, number)
        if best is None:
            return None
        tokens, read, number = best
        canvas, places = laid[number]
        origins = [(0, 0, *size)] * len(top) + list(regions)
        pieces = tuple(
            Fragment(0, at, side, origin, k < len(top))
            for k, (at, side, origin) in enumerate(zip(places, sides, origins, strict=True))
        )
        whole = top[0][0] / size[0] * read if top else 0.0
        return Plan("strip", (canvas,), pieces, tokens, scale * read, whole)

    left = spend.tokens - (0 if above is None else above.tokens)
    return largest(spend.magnify, make, estimated(regions, spend, left, 2 * GAP))


def _widths(sides: Sequence[int]) -> list[int]:
    """Return widths of a strip worth trying: of the widest piece, and of the first pieces side by side."""
    widest = max(sides)
    sums = accumulate(side + GAP for side in sides)
    return sorted({widest, *(total - GAP for total in sums if total - GAP > widest)})


def _shelves(sides: Sequence[Size], top: int, width: int) -> tuple[Size, list[tuple[int, int]]]:
    """Lay pieces in rows of at most `width` px, the first `top` in rows of their own: return the size and
    their corners.
    """
    places = []
    x, y, high, wide = GAP, GAP, 0, 0
    for number, side in enumerate(sides):
        if x > GAP and (x - GAP + side[0] > width or number == top > 0):
            x, y, high = GAP, y + high + GAP, 0
        places.append((x, y))
        x, high = x + side[0] + GAP, max(high, side[1])
        wide = max(wide, x)
    return (wide, y + high + GAP), places


def box_of(piece: Fragment) -> Box:
    """Return where a piece lies in its packed picture."""
    (x, y), (width, height) = piece.at, piece.size
    return float(x), float(y), float(x + width), float(y + height)
