"""Packing: make pictures that show what a question needs of an image, enlarged, within a budget of tokens.

pack_for(image, "What is the total?", tokens=256, rule="claude")    chooses and packs
pack(image, allocation, tokens=256, rule=32)                        packs what was chosen elsewhere

Candidates differ in layout and in how many units of the page they show: rows with their labels, controls with
their captions, things without print. Each is scored by the chance that the unit with the answer is whole on
what is sent, in print high enough to be read.
"""

from __future__ import annotations

import math
import numbers
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation, Reason, grid_positions, joined_notes
from arr_coc.choose.boxes import Box
from arr_coc.choose.budget import Budget
from arr_coc.files.images import ImageSource, open_image
from arr_coc.files.question import check_questions, kind_of
from arr_coc.guide.coupling import Coupling
from arr_coc.pixels.lines import PixelBox, line_heights, print_height
from arr_coc.pixels.packed import Packed, Place
from arr_coc.pixels.page import PrintedPage, find_page
from arr_coc.pixels.planning import (
    GAP,
    MAX_IN_STRIP,
    MAX_PICTURES,
    Fragment,
    Plan,
    Spend,
    box_of,
    crops,
    estimated,
    overview,
    paper_size,
    priced,
    reading_scale,
    shrunk,
    strip,
)
from arr_coc.pixels.regions import all_boxes, cell_boxes, joined_in_rows, regions, with_lines
from arr_coc.pixels.rules import Rule, find_rule
from arr_coc.pixels.units import around, ranked_units, relevance_at, unit_pieces, unit_regions, with_room
from arr_coc.relevance.deciding import Decision
from arr_coc.selector import KnownPicture, Selector, Sized

LAYOUTS = ("auto", "overview+crops", "crops", "strip", "crop", "mask", "shrunk")
"""Layouts by name; "crops" is "overview+crops" without the overview, "shrunk" the whole picture, smaller."""
FALLBACKS = ("crops", "crop", "shrunk")  # layouts in place of one that doesn't fit
SINGLE = ("strip", "crop", "mask")  # layouts of one picture, in place of which none of several is taken
T = TypeVar("T", bound=Sized)
MAGNIFY = (1.0, 8.0)  # the least and the most that `magnify` may be
GOOD_PRINT = 24.0  # px of a line of print above which nothing is gained
LETTERS = 1.5  # heights, with its pale edges, of the narrowest line that is print for certain
USUAL_PRINT = 14.0  # px, assumed where there is no print: details of a photograph
READABLE = 6.5  # px of a line of print of which a model reads half of all lines; RapidOCR needs 5.4
SHARPNESS = 0.2  # of that height, by which a line has to be higher to be read three times in four
LEGIBLE = 1.4  # times that height, of which all lines are read
READERS = (2.0, 40.0)  # px that `readable` may be
COMFORT = (12.0, 0.04)  # px of a line that any model reads, and what that is worth
ALONE = 0.01  # what each crop more takes away: parts of a picture are harder to understand
CONTEXT = 0.04  # what an overview is worth beside what can be read on it
SHARES = (0.12, 0.2, 0.33)  # of the tokens, for an overview
MARGIN = (0.5, 0.25)  # of a cell, around regions: across and down
PLANNED = 5  # candidates, the best by estimate, that are laid out
MASKED = 64  # the fewest cells around which "mask" leaves a picture as it is
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # of cells that are tried
MAX_FACTS = 20  # units that may hold the answer
SURENESS = 1.5  # power of a unit's relevance to which it is likely to hold the answer
HELD = 0.9  # of the relevance of the best cells, that regions have to hold together
WIDEST_FRAME = 64  # px of a patch, of those larger than which none is wasted on a region
MIN_SCALE = 0.25  # of regions, where their frames are estimated
TRUSTED = 0.8  # the confidence of a choice that came without one
PAID_WHOLE = ("squares", "patches", "padded")  # ways of counting by which a part of a patch costs a whole one
FLAT = (128, 128, 128)  # colour of a mask
PAPER, FRAME = (255, 255, 255), (160, 160, 160)  # colours between the parts of a strip


class Decider(Protocol):
    """What packing needs of a `Selector`: choosing cells, and memory of what was made of a picture."""

    def known(self, picture: ImageSource) -> KnownPicture: ...

    def beside(self, picture: KnownPicture, make: Callable[[Image.Image], T]) -> T: ...

    def decide(
        self, picture: ImageSource | KnownPicture, question: str, budget: Budget | None = None
    ) -> Decision: ...


class LikelyUnits(NamedTuple):
    """The units of a picture that may hold the answer, F of them, best first."""

    boxes: NDArray[np.float64]  # [B, 4] in px, of the pieces of all of them: lines, controls
    first: NDArray[np.int64]  # [F], the number of the first piece of each
    needed: tuple[tuple[PixelBox, ...], ...]  # what is to be shown of each: its pieces, and its header
    weights: NDArray[np.float64]  # [F], the chance of each that it holds the answer, adding up to 1
    heights: NDArray[np.float64]  # [F], px of the lowest of its lines


class Sight(NamedTuple):
    """What is known about a picture that is being packed: its print, and how much each cell matters."""

    image: Image.Image
    page: PrintedPage
    every: Allocation  # whose kept cells may be shown
    relevance: NDArray[np.float64]  # how much of the answer each cell may hold, [H, W], adding up to 1
    height: float  # px of the print that matters
    readable: float  # px of a line of print that is read half of the time
    confidence: float  # in [0, 1], that the relevant cells are those that hold the answer
    facts: LikelyUnits | None = None  # None: cells are chosen, not units


class Candidate(NamedTuple):
    """Boxes that might be shown, the cells in them, and the regions of the picture around most of them."""

    keep: NDArray[np.int64]  # numbers of cells, ascending
    boxes: Sequence[PixelBox]
    around: Sequence[PixelBox]


class Choice(NamedTuple):
    """One way to lay out a candidate's regions, with an estimated score."""

    score: float
    candidate: Candidate
    layout: str
    above: Plan | None  # the overview before them


def pack(
    picture: ImageSource,
    allocation: Allocation,
    tokens: int,
    rule: Rule | str | int = 32,
    layout: str = "auto",
    lines: Sequence[Box] = (),
    magnify: float = 3.0,
    readable: float = READABLE,
) -> Packed:
    """Pack a picture whose cells were chosen already: cut these out and enlarge them within a token budget.

    Args:
        picture: Whatever `open_image` takes.
        allocation: The cells that were chosen; every pixel of them is on a picture of the result.
        tokens: The most that the result may cost, at least the rule's cheapest picture.
        rule: How tokens are counted: a name of `RULES`, a `Rule`, or N for one token for each N x N px.
        layout: One of `LAYOUTS`. "auto" takes the one on which the answer is most likely read.
        lines: Boxes of lines of print in px of the picture, through which no crop cuts; (): found in the
            pixels.
        magnify: The most px that a crop may have for one of the original, 1 to 8.
        readable: Height in px, 2 to 40, of print that the reader still reads half of the time, by which
            "auto" chooses: 5 for a strong OCR; about 9 for a model that reads small print badly.

    Returns:
        Pictures within the budget. If that allows the whole picture, and the provider doesn't scale it down,
        they are the picture itself, except for "mask".

    Raises:
        ValueError: a picture that can't be read, an unknown rule or layout, a clip's allocation, or too few
            tokens for any picture.
    """
    image = open_image(picture)
    spend, own_lines = _checked(tokens, rule, layout, magnify, readable), _checked_boxes(lines)
    if not isinstance(allocation, Allocation):
        raise ValueError(f"allocation is {kind_of(allocation)}: give what a selector or `look` has chosen")
    if allocation.grid[0] != 1:
        raise ValueError(
            f"the allocation is of a clip of {allocation.grid[0]} steps: pack its frames one by one"
        )
    whole = _whole(image, spend, layout)
    if whole is not None:
        return replace(whole, allocation=allocation)
    page = find_page(image)
    if own_lines:
        page = replace(page, lines=own_lines)
    sight = _sight(image, page, allocation, TRUSTED, readable)
    limited = _limited(spend, sight)
    keep = allocation.keep.numpy()
    boxes = joined_in_rows(all_boxes(allocation, image.size), image.size)
    around = _regions(sight, boxes, _frame_of(boxes, limited), MAX_IN_STRIP)
    _, plan = _best(sight, [Candidate(keep, boxes, around)], limited, layout)
    return _drawn(sight, allocation, plan, spend.rule)


def pack_for(
    picture: ImageSource,
    questions: str | Sequence[str],
    tokens: int,
    rule: Rule | str | int = 32,
    layout: str = "auto",
    selector: Decider | None = None,
    magnify: float = 3.0,
    readable: float = READABLE,
) -> Packed:
    """Pack a picture for some questions: choose what they need, and enlarge it within a budget of tokens.

    Args:
        picture: Whatever `open_image` takes.
        questions: One or more; what any of them needs is shown.
        tokens: The most that the result may cost, at least the rule's cheapest picture.
        rule: How tokens are counted: a name of `RULES`, a `Rule`, or N for one token for each N x N px.
        layout: One of `LAYOUTS`. "auto" takes the one on which the answer is most likely read.
        selector: Scores the cells; None: `Selector()`, the bundled guide.
        magnify: The most px that a crop may have for one of the original, 1 to 8.
        readable: Height in px, 2 to 40, of print that the reader still reads half of the time, by which
            "auto" chooses: 5 for a strong OCR; about 9 for a model that reads small print badly.

    Returns:
        Pictures within the budget, with the selector's confidence that the picture holds what is asked for.
        How many cells are kept follows from the budget.

    Raises:
        ValueError: as `pack`, or a question without words, or no question.
    """
    image = open_image(picture)
    spend = _checked(tokens, rule, layout, magnify, readable)
    texts = check_questions([questions] if isinstance(questions, str) else questions)
    chooser: Decider = Selector() if selector is None else selector
    opened = chooser.known(image)
    decisions = [chooser.decide(opened, text, 1.0) for text in texts]
    couplings = [one.couplings[0] for one in decisions if one.couplings]
    confidence = min((one.confidence for one in couplings), default=None)
    every = _united([one.allocations[0] for one in decisions])
    whole = _whole(image, spend, layout)
    if whole is not None:
        return replace(whole, allocation=every, confidence=confidence)
    trust = min((_trust(one) for one in couplings), default=TRUSTED)
    page = chooser.beside(opened, find_page)
    sight = _sight(image, page, every, trust, readable)._replace(facts=_facts(page, every))
    limited = _limited(spend, sight)
    candidate, plan = _best(sight, list(_candidates(sight, limited)), limited, layout)
    kept = _keeping(every, torch.from_numpy(candidate.keep))
    return replace(_drawn(sight, kept, plan, spend.rule), confidence=confidence)


def pack_legibly(
    image: Image.Image,
    page: PrintedPage,
    tokens: int,
    rule: Rule | str | int = 32,
    readable: float = READABLE,
) -> Packed | None:
    """Pack a whole picture as small as it may be while its print stays legible, for a question of any place.

    Law: each line of print that is at least `readable` px high as the whole picture is read stays so; lines
    are of two letters or more, for less may be a radio button, and aren't cut off by the picture's edge.

    Args:
        image: The picture, as `open_image` gives it.
        page: Its `find_page`.
        tokens: At least so many are spent.
        rule: How tokens are counted, as in `pack`.
        readable: Height in px of print that the reader still reads half of the time.

    Returns:
        The picture, scaled down; None where that saves nothing, and where too little print is legible to say
        by it how small the picture may be.
    """
    spend = _checked(tokens, rule, "shrunk", 1.0, readable)
    most, read = spend.rule.tokens(*image.size), reading_scale(image.size, spend.rule)
    lines = [
        line
        for line in page.lines
        if line[1] >= 1 and line[3] < image.height - 1 and line[2] - line[0] >= LETTERS * (line[3] - line[1])
    ]
    usual = print_height(lines)
    if usual is None or usual * read < readable:
        return None
    heights = line_heights(lines)
    least = readable / float(heights[heights * read >= readable].min())

    def plan(spent: int) -> Plan | None:
        return shrunk(image.size, replace(spend, tokens=spent))

    def is_legible(spent: int) -> bool:
        made = plan(spent)
        if made is None:
            return False
        side = made.sizes[0][1] / image.height  # of a line, which is rounded otherwise than its length
        return side * reading_scale(made.sizes[0], spend.rule) >= least

    budgets = range(tokens, most)
    spent = bisect_left(budgets, True, key=is_legible)
    chosen = plan(budgets[spent]) if spent < len(budgets) else None
    return None if chosen is None else _painted(image, chosen, spend.rule)


# ---- what is known -------------------------------------------------------------------------------------


class TooFewTokens(ValueError):
    """Raised if the budget is below what any picture costs."""


def _too_few(spend: Spend) -> TooFewTokens:
    return TooFewTokens(
        f"tokens {spend.tokens} is less than any picture costs by rule {spend.rule.name!r}: give at least "
        f"{spend.rule.cheapest}"
    )


def _checked(tokens: int, rule: Rule | str | int, layout: str, magnify: float, readable: float) -> Spend:
    own = rule if isinstance(rule, Rule) else find_rule(rule)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise ValueError(
            f"tokens {tokens!r:.40} is no count of tokens: give a whole number above 0, such as 400"
        )
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r:.40} is not known: use one of {', '.join(LAYOUTS)}")
    for name, value, (least, most), unit, usual in (
        ("magnify", magnify, MAGNIFY, "", 3.0),
        ("readable", readable, READERS, " px", READABLE),
    ):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise ValueError(f"{name} {value!r:.40} is no number: {usual:g} is usual")
        if not least <= value <= most:
            raise ValueError(
                f"{name} {value!r:.40} is not within {least:g} and {most:g}{unit}: {usual:g} is usual"
            )
    spend = Spend(tokens, own, float(magnify))
    if tokens < own.cheapest:
        raise _too_few(spend)
    return spend


def _checked_boxes(lines: Sequence[Box]) -> tuple[Box, ...]:
    try:
        boxes = tuple((float(x0), float(y0), float(x1), float(y1)) for x0, y0, x1, y1 in lines)
        if all(map(math.isfinite, chain(*boxes))):
            return boxes
        raise ValueError("a side is no number")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"lines {lines!r:.60} are no boxes: give (x0, y0, x1, y1) in px of the picture for each, or ()"
        ) from error


def _sight(
    image: Image.Image, page: PrintedPage, allocation: Allocation, confidence: float, readable: float
) -> Sight:
    relevance = _weights(allocation)
    weights = relevance_at(relevance, page.boxes, image.size).tolist()
    height = print_height(page.lines, weights)
    return Sight(
        image, page, allocation, relevance, USUAL_PRINT if height is None else height, readable, confidence
    )


def _weights(allocation: Allocation) -> NDArray[np.float64]:
    """Return how much of the answer each cell may hold, [H, W], adding up to 1."""
    mass = allocation.balanced[0].double().clamp_min(1e-6).numpy()
    return mass / mass.sum()


def _limited(spend: Spend, sight: Sight) -> Spend:
    """Return the spend with its magnification limited: above some height print doesn't get easier to read."""
    return replace(spend, magnify=min(spend.magnify, max(1.0, GOOD_PRINT / sight.height)))


def _trust(coupling: Coupling) -> float:
    """Return how far to follow the cells' relevance, in [0, 1]; less for questions about all of a picture."""
    return math.sqrt(coupling.confidence) * (1 - coupling.overview) * (1 - coupling.unusual)


def _united(allocations: Sequence[Allocation]) -> Allocation:
    """Merge allocations into one that keeps all cells, each with its highest relevance."""
    if len(allocations) == 1:
        return allocations[0]
    names = ("information", "perspectival", "participatory", "balanced")
    maps = {name: torch.stack([getattr(one, name) for one in allocations]).amax(0) for name in names}
    order = maps["balanced"].flatten().argsort(descending=True, stable=True)
    return replace(allocations[0], order=order, note=joined_notes(allocations), **maps)


def _facts(page: PrintedPage, every: Allocation) -> LikelyUnits | None:
    """Return the units of a page that may hold the answer; None if nothing stands out."""
    units = ranked_units(page, every, MAX_FACTS)
    if not units:
        return None
    scores = np.array([unit.score for unit in units]) ** SURENESS
    heights = np.array([min((page.heights[i] for i in unit.lines), default=USUAL_PRINT) for unit in units])
    pieces = [unit_pieces(page, unit) for unit in units]
    heads = [() if unit.header < 0 else (around([page.lines[unit.header]]),) for unit in units]
    needed = tuple((*head, *own) for head, own in zip(heads, pieces, strict=True))
    first = np.cumsum([0, *(len(own) for own in pieces[:-1])])
    boxes = np.array([box for own in pieces for box in own], dtype=np.float64)
    return LikelyUnits(boxes, first, needed, scores / scores.sum(), heights)


def _candidates(sight: Sight, spend: Spend) -> Iterator[Candidate]:
    """Yield sets of ever more of the best units; where nothing stands out, of the best cells."""
    if sight.facts is None:
        yield from _candidates_of_cells(sight, spend)
        return
    size, grid = sight.image.size, sight.relevance.shape
    kept = np.zeros(grid, dtype=bool)
    boxes: list[PixelBox] = []
    for number, parts in enumerate(sight.facts.needed, 1):
        boxes += parts
        for part in parts:
            kept[_cells_in(part, size, grid)] = True
        if number in COUNTS or number == len(sight.facts.needed):
            own = tuple(dict.fromkeys(boxes))  # a line may be of several units
            around = unit_regions(own, sight.page, _frame_of(own, spend), MAX_IN_STRIP)
            yield Candidate(np.flatnonzero(kept), own, around)


def _candidates_of_cells(sight: Sight, spend: Spend) -> Iterator[Candidate]:
    """Yield sets of ever more of the best cells, without those in regions that hold little."""
    order = sight.every.balanced.flatten().argsort(descending=True, stable=True).numpy()
    every = np.empty((sight.every.total, 4), dtype=np.int64)
    every[sight.every.keep.numpy()] = all_boxes(sight.every, sight.image.size)
    before: NDArray[np.int64] | None = None
    for count in sorted({min(count, sight.every.total) for count in COUNTS}):
        keep, around = _dense(sight, np.sort(order[:count]), every, spend)
        if before is None or not np.array_equal(before, keep):
            yield Candidate(keep, joined_in_rows(every[keep], sight.image.size), around)
        before = keep


def _keeping(every: Allocation, keep: Tensor) -> Allocation:
    """Return an allocation of the same cells that keeps only some, numbered in ascending order."""
    scores = every.balanced.flatten()[keep]
    reasons = torch.full_like(keep, int(Reason.RELEVANT))
    order = keep[scores.argsort(descending=True, stable=True)]
    positions = grid_positions(keep, every.grid)
    return replace(every, keep=keep, order=order, positions=positions, reasons=reasons, budget=len(keep))


def _dense(
    sight: Sight, keep: NDArray[np.int64], boxes: NDArray[np.int64], spend: Spend
) -> tuple[NDArray[np.int64], list[PixelBox]]:
    """Return the cells in the densest regions, and these regions; they hold the share HELD of relevance."""
    size, grid = sight.image.size, sight.relevance.shape
    joined = joined_in_rows(boxes[keep], size)
    around = _regions(sight, joined, _frame_of(joined, spend), MAX_IN_STRIP, False)
    cells = [_cells_in(box, size, grid) for box in around]
    held = [float(sight.relevance[one].sum()) for one in cells]
    most, total, chosen = HELD * sum(held), 0.0, []
    inside = np.zeros(grid, dtype=bool)
    for index in sorted(range(len(around)), key=lambda index: -held[index] / _area(around[index])):
        if total >= most:
            break
        chosen.append(around[index])
        inside[cells[index]] = True
        total += held[index]
    return keep[inside.ravel()[keep]], chosen


def _area(box: PixelBox) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def _cells_in(box: PixelBox, size: tuple[int, int], grid: tuple[int, int]) -> tuple[slice, slice]:
    """Return the rows and columns of the cells whose middle lies in a box, at least one each."""
    sides = []
    for low, high, side, cells in ((box[1], box[3], size[1], grid[0]), (box[0], box[2], size[0], grid[1])):
        first = min(cells - 1, math.ceil(low * cells / side - 0.5))
        sides.append(slice(first, max(first + 1, math.ceil(high * cells / side - 0.5))))
    return sides[0], sides[1]


def _frame_of(boxes: Sequence[PixelBox], spend: Spend) -> float:
    """Return by how many px of the original a region's side grows when it is rounded up to whole patches."""
    area = sum(map(_area, boxes))
    patch = min(spend.rule.patch, WIDEST_FRAME)
    scale = math.sqrt(spend.tokens * patch**2 / max(1, area))
    return patch / min(max(scale, MIN_SCALE), spend.magnify)


# ---- which layout -------------------------------------------------------------------------------------


def _best(sight: Sight, candidates: Sequence[Candidate], spend: Spend, layout: str) -> tuple[Candidate, Plan]:
    """Return the best plan of a layout, and the candidate that it shows.

    All are estimated, the best few laid out. If nothing of a layout fits, as an overview beside crops in very
    few tokens, the next of FALLBACKS is tried; `TooFewTokens` if none of them fits.
    """
    size = sight.image.size
    whole = shrunk(size, spend)
    if layout == "auto" and whole is not None and _is_legible(sight, whole.scale):
        return Candidate(sight.every.keep.numpy(), (), ()), whole
    overviews = [one for share in SHARES if (one := overview(size, spend, share)) is not None]
    for name in (layout, *FALLBACKS[layout in SINGLE :]):
        best: tuple[float, Candidate, Plan] | None = None
        choices = [one for each in candidates for one in _choices(sight, each, spend, name, overviews)]
        choices.sort(key=lambda one: -one.score)
        plans = [(one.candidate, _laid_out(sight, one, spend)) for one in choices[:PLANNED]]
        if all(plan is None for _, plan in plans):
            plans += [(one.candidate, _laid_out(sight, one, spend)) for one in choices[PLANNED:]]
        if whole is not None and name in ("auto", "shrunk", "mask"):
            every = Candidate(sight.every.keep.numpy(), (), ())
            masked = next((one for one in candidates if len(one.keep) >= MASKED), candidates[-1])
            plans.append((masked, replace(whole, layout="mask")) if name == "mask" else (every, whole))
        for candidate, plan in plans:
            if plan is None:
                continue
            score = _score(sight, plan)
            if best is None or score > best[0]:
                best = score, candidate, plan
        if best is not None:
            return best[1], best[2]
    raise _too_few(spend)


def _is_legible(sight: Sight, scale: float) -> bool:
    """Return whether a picture's print is read almost without loss at a scale."""
    return sight.height * scale >= LEGIBLE * sight.readable


def _choices(
    sight: Sight, candidate: Candidate, spend: Spend, layout: str, overviews: Sequence[Plan]
) -> Iterator[Choice]:
    """Yield the layouts of a candidate by a name, each with an estimate of its score."""
    separate = min(MAX_PICTURES, spend.tokens // spend.rule.cheapest)
    ways: list[tuple[str, Plan | None]] = []
    if layout == "crop":
        ways.append(("crop", None))
    if layout in ("auto", "crops") and separate:
        ways.append(("crops", None))
    if layout in ("auto", "overview+crops") and separate > 1:
        ways += [("overview+crops", one) for one in overviews]
    if layout in ("auto", "strip"):
        ways += [("strip", one) for one in (None, *overviews)]
    sent = _cells_of(sight, candidate.around)
    for name, above in ways:
        left = spend.tokens - (0 if above is None else above.tokens)
        frame = GAP if name == "strip" else spend.rule.patch / 2
        scale = estimated(candidate.around, spend, left, frame)
        count = len(candidate.around)
        if name != "strip":
            count = min(count, separate - (above is not None))
        whole = 0.0 if above is None else above.scale
        score = _worth(sight, candidate.around, sent, scale, whole, count)
        yield Choice(score, candidate, name, above)


def _laid_out(sight: Sight, choice: Choice, spend: Spend) -> Plan | None:
    """Return the plan of a choice; None if it doesn't fit."""
    size = sight.image.size
    boxes = choice.candidate.boxes
    if choice.layout == "strip":
        return strip(_regions(sight, boxes, GAP, MAX_IN_STRIP), size, spend, choice.above)
    if choice.layout == "crop":
        plan = crops(_regions(sight, boxes, 0, 1), spend)
    else:
        separate = min(MAX_PICTURES, spend.tokens // spend.rule.cheapest) - (choice.above is not None)
        plan = crops(_regions(sight, boxes, _frame_of(boxes, spend), separate), spend, choice.above)
    if plan is None:
        return None
    plan = plan if choice.layout != "crop" else replace(plan, layout="crop")
    return _to_whole_patches(sight, plan, spend)


def _cells_of(sight: Sight, boxes: Sequence[PixelBox]) -> NDArray[np.bool_]:
    """Return which cells have their middle in one of some boxes, [H, W]."""
    sent = np.zeros(sight.relevance.shape, dtype=bool)
    for box in boxes:
        sent[_cells_in(box, sight.image.size, sight.relevance.shape)] = True
    return sent


def _to_whole_patches(sight: Sight, plan: Plan, spend: Spend) -> Plan:
    """Return a plan whose regions are grown to fill the patches that they pay for anyway."""
    if spend.rule.way not in PAID_WHOLE:
        return plan
    pieces = (
        _spread_units(sight, plan.pieces, spend.rule.patch)
        if sight.facts
        else tuple(
            piece if piece.overview else _spread(sight, piece, spend.rule.patch) for piece in plan.pieces
        )
    )
    sizes = tuple(paper_size(piece.size, spend.rule) for piece in pieces)
    price = priced(sizes, spend.rule)
    if price is None or price[0] > plan.tokens:
        return plan
    return replace(plan, pieces=pieces, sizes=sizes, tokens=price[0])


def _spread_units(sight: Sight, pieces: Sequence[Fragment], patch: int) -> tuple[Fragment, ...]:
    """Grow parts of units to fill the patches that they pay for, where no other print begins."""
    grown = [piece for piece in pieces if not piece.overview]
    scales = [
        tuple(side / part for side, part in zip(one.size, _sides(one.origin), strict=True)) for one in grown
    ]
    margins = []
    for piece, scale in zip(grown, scales, strict=True):
        left = [(-side % patch) / part / 2 for side, part in zip(piece.size, scale, strict=True)]
        margins.append((int(left[0]), int(left[1])))
    boxes = with_room([piece.origin for piece in grown], sight.page.boxes, sight.image.size, margins)
    sizes = [
        (round((box[2] - box[0]) * scale[0]), round((box[3] - box[1]) * scale[1]))
        for box, scale in zip(boxes, scales, strict=True)
    ]
    made = [
        replace(piece, origin=box, size=size) for piece, box, size in zip(grown, boxes, sizes, strict=True)
    ]
    return (*(piece for piece in pieces if piece.overview), *made)


def _sides(box: PixelBox) -> tuple[int, int]:
    return box[2] - box[0], box[3] - box[1]


def _spread(sight: Sight, piece: Fragment, patch: int) -> Fragment:
    """Grow a region to fill the patches that it pays for, without cutting a line of print."""
    x0, y0, x1, y1 = piece.origin
    scale = (piece.size[0] / (x1 - x0), piece.size[1] / (y1 - y0))
    target = [-(-side // patch) * patch for side in piece.size]
    across, down = (
        int((goal - side) / part / 2) for goal, side, part in zip(target, piece.size, scale, strict=True)
    )
    for margin in ((across, down), (0, down)):
        box = with_lines(piece.origin, sight.page.boxes, sight.image.size, margin)
        size = round((box[2] - box[0]) * scale[0]), round((box[3] - box[1]) * scale[1])
        if size[0] <= target[0] and size[1] <= target[1]:
            return replace(piece, origin=box, size=size)
    return piece


def _regions(
    sight: Sight, boxes: Sequence[PixelBox], frame: float, most: int, exact: bool = True
) -> list[PixelBox]:
    """Return the parts of the picture around units or cells; if not `exact`, sides of cells may cut words."""
    if sight.facts is not None:
        return unit_regions(boxes, sight.page, frame, max(1, most))
    rows, columns = sight.relevance.shape
    width, height = sight.image.size
    margin = math.ceil(MARGIN[0] * width / columns), math.ceil(MARGIN[1] * height / rows)
    ink = sight.page.ink if exact else None
    return regions(boxes, sight.page.boxes, sight.image.size, margin, frame, max(1, most), ink)


def _score(sight: Sight, plan: Plan) -> float:
    """Return how good a plan is: the chance that the answer is on it and readable, with bonuses and costs."""
    if plan.layout in ("shrunk", "mask"):
        height = sight.height * plan.scale
        return float(_read_share(height, sight.readable)) + _comfort(height) + CONTEXT
    parts = [piece.origin for piece in plan.pieces if not piece.overview]
    return _worth(sight, parts, _cells_of(sight, parts), plan.scale, plan.overview, len(parts))


def _worth(
    sight: Sight,
    parts: Sequence[PixelBox],
    sent: NDArray[np.bool_],
    scale: float,
    whole: float,
    count: int,
) -> float:
    """Return the score of parts at `scale` that show cells `sent`, as `count` of them are sent.

    An overview beside them is at `whole`, 0 without one.
    """
    trust, height = sight.confidence, sight.height
    near, far = (
        float(_read_share(height * each, sight.readable)) if each else 0.0 for each in (scale, whole)
    )
    area = float(sent.mean())
    rest = area * near + (1 - area) * far
    if sight.facts is None:
        held = float(sight.relevance[sent].sum())
        answered = held * near + (1 - held) * far
    else:
        weights, heights = sight.facts.weights, sight.facts.heights
        there = np.logical_and.reduceat(_inside(sight.facts.boxes, parts), sight.facts.first)
        scales = np.where(there, scale, whole)
        answered = float(weights @ np.where(scales > 0, _read_share(heights * scales, sight.readable), 0.0))
    score = trust * answered + (1 - trust) * rest
    return score + _comfort(height * scale) + CONTEXT * (whole > 0) - ALONE * count


def _inside(boxes: NDArray[np.float64], parts: Sequence[PixelBox]) -> NDArray[np.bool_]:
    """Return which boxes [F, 4] lie in one of some parts as a whole."""
    outer = np.array(parts, dtype=np.float64).reshape(-1, 1, 4)
    held = (outer[..., :2] <= boxes[:, :2]).all(-1) & (outer[..., 2:] >= boxes[:, 2:]).all(-1)
    return np.any(held, axis=0)


def _read_share(height: float | NDArray[np.float64], readable: float) -> NDArray[np.float64]:
    """Return the share of lines of print of a height that is read; at the height `readable` it is half."""
    return 1 / (1 + np.exp(np.minimum(50.0, (readable - np.asarray(height)) / (SHARPNESS * readable))))


def _comfort(height: float) -> float:
    """Return the bonus for print that is higher than just readable."""
    least, worth = COMFORT
    more = min(1.0, max(0.0, height / least)) + 0.25 * min(1.0, max(0.0, height / least - 1))
    return worth * more


# ---- pixels -------------------------------------------------------------------------------------------


def _whole(image: Image.Image, spend: Spend, layout: str) -> Packed | None:
    """Return the picture itself if the budget allows it and the provider reads it at its size; else None."""
    cost = spend.rule.tokens(*image.size)
    read = spend.rule.seen(*image.size)
    reduced = any(part < 0.98 * side for part, side in zip(read, image.size, strict=True))
    if layout == "mask" or cost > spend.tokens or reduced:
        return None
    box = (0.0, 0.0, float(image.width), float(image.height))
    place = Place(0, box, box, 1.0)
    captions = (f"The picture, {image.width} x {image.height} px.",)
    return Packed((image,), captions, (place,), image.size, cost, cost, "whole", spend.rule.name)


def _drawn(sight: Sight, allocation: Allocation, plan: Plan, rule: Rule) -> Packed:
    """Draw the pictures of a plan that shows an allocation's cells."""
    image = _masked(sight, allocation) if plan.layout == "mask" else sight.image
    return replace(_painted(image, plan, rule), allocation=allocation)


def _painted(image: Image.Image, plan: Plan, rule: Rule) -> Packed:
    """Draw the pictures of a plan that shows parts of an image."""
    pictures: list[Image.Image] = []
    for number, size in enumerate(plan.sizes):
        parts = [part for part in plan.pieces if part.picture == number]
        if plan.layout == "strip":
            canvas = Image.new("RGB", size, PAPER)
            for part in parts:
                _frame(canvas, part)
                canvas.paste(_cut(image, part), part.at)
            pictures.append(canvas)
        elif parts[0].size == size:
            pictures.append(_cut(image, parts[0]))
        else:
            canvas = Image.new("RGB", size, PAPER)
            canvas.paste(_cut(image, parts[0]))
            pictures.append(canvas)
    places = tuple(_place(part) for part in sorted(plan.pieces, key=lambda part: part.overview))
    return Packed(
        tuple(pictures),
        _captions(image.size, plan),
        places,
        image.size,
        plan.tokens,
        rule.tokens(*image.size),
        plan.layout,
        rule.name,
    )


def _cut(image: Image.Image, part: Fragment) -> Image.Image:
    """Cut a part out of the original and resize it as planned."""
    region = image if part.origin == (0, 0, *image.size) else image.crop(part.origin)
    if region.size == part.size:
        return region.copy() if region is image else region
    # Averaging whole blocks first makes a small copy of a large picture several times as fast.
    return region.resize(part.size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def _frame(canvas: Image.Image, part: Fragment) -> None:
    (x, y), (width, height) = part.at, part.size
    canvas.paste(FRAME, (x - 1, y - 1, x + width + 1, y + height + 1))


def _masked(sight: Sight, allocation: Allocation) -> Image.Image:
    """Return the picture with everything but the regions of an allocation's cells in one flat colour."""
    size = sight.image.size
    masked = Image.new("RGB", size, FLAT)
    for box in _regions(sight._replace(facts=None), cell_boxes(allocation, size), 0, allocation.total):
        masked.paste(sight.image.crop(box), box[:2])
    return masked


def _place(part: Fragment) -> Place:
    x0, y0, x1, y1 = part.origin
    origin = (float(x0), float(y0), float(x1), float(y1))
    factor = math.sqrt(math.prod(part.size) / ((x1 - x0) * (y1 - y0)))
    return Place(part.picture, box_of(part), origin, factor)


# ---- captions -----------------------------------------------------------------------------------------


def _captions(size: tuple[int, int], plan: Plan) -> tuple[str, ...]:
    """Return a sentence for each picture: what it shows and where that is."""
    if plan.layout == "mask":
        return (f"The picture of {size[0]} x {size[1]} px; what a question doesn't need is gray.",)
    if plan.layout == "shrunk":
        return (f"The whole picture of {size[0]} x {size[1]} px, scaled to {_percent(plan.pieces[0])}.",)
    details = [part for part in plan.pieces if not part.overview]
    if plan.layout == "strip":
        where = "; ".join(_where(part, size) for part in details)
        above = "Above an overview of the picture, below it" if plan.overview else "Stacked in reading order,"
        count = f"{len(details)} part{'s' * (len(details) > 1)} of a picture of {size[0]} x {size[1]} px"
        return (f"{above} {count}: {where}.",)
    captions = []
    for part in plan.pieces:
        if part.overview:
            text = f"An overview of the whole picture of {size[0]} x {size[1]} px, at {_percent(part)}."
        else:
            number = f"Part {details.index(part) + 1} of {len(details)}" if len(details) > 1 else "A part"
            text = f"{number} of the picture of {size[0]} x {size[1]} px: {_where(part, size)}."
        captions.append(text)
    return tuple(captions)


def _percent(part: Fragment) -> str:
    return f"{100 * part.size[0] / (part.origin[2] - part.origin[0]):.0f} % of its size"


def _where(part: Fragment, size: tuple[int, int]) -> str:
    """Return where a part lies in the original, in words and px."""
    x0, y0, x1, y1 = part.origin
    row = _third((y0 + y1) / 2 / size[1], ("top", "middle", "bottom"))
    column = _third((x0 + x1) / 2 / size[0], ("left", "centre", "right"))
    return f"{row} {column}, x {x0} to {x1}, y {y0} to {y1} px, at {_percent(part)}"


def _third(share: float, names: tuple[str, str, str]) -> str:
    return names[min(2, int(3 * share))]
