"""Packing: pictures that stand for an image within a budget of tokens, with what a question needs enlarged.

pack_for(image, "What is the total?", tokens=256, rule="claude")    chooses and packs
pack(image, allocation, tokens=256, rule=32)                        packs what was chosen elsewhere

Which layout and how many cells: each candidate is judged by the chance that the answer is on what is sent, and
is high enough there to be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from arr_coc.choose.allocation import Allocation, Reason, grid_positions
from arr_coc.choose.boxes import Box
from arr_coc.files.images import ImageSource, open_image
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.selector import Selector
from arr_coc.pixels.lines import find_lines, print_height
from arr_coc.pixels.packed import Packed, Place
from arr_coc.pixels.planning import (
    MOST_IN_STRIP,
    MOST_PICTURES,
    Part,
    Plan,
    Spend,
    box_of,
    crops,
    shrunk,
    strip,
)
from arr_coc.pixels.regions import PixelBox, cell_boxes, regions
from arr_coc.pixels.rules import Rule, find_rule

LAYOUTS = ("auto", "overview+crops", "crops", "strip", "crop", "mask", "shrunk")
"""Layouts by name; "crops" is "overview+crops" without the overview, "shrunk" the whole picture, smaller."""
MAGNIFY = (1.0, 8.0)  # the least and the most that `magnify` may be
GOOD_PRINT = 24.0  # px of a line of print above which nothing is gained
USUAL_PRINT = 14.0  # px, assumed where there is no print: details of a photograph
# A line of print of READABLE px is read half of the time, SHARPNESS px more by three in four; of a strong reader.
READABLE, SHARPNESS = 5.5, 0.6
COMFORT = (
    12.0,
    0.04,
)  # px of a line that any model reads, and what that is worth beside one that is just read
CONTEXT = 0.04  # what an overview is worth beside what can be read on it
SHARES = (0.12, 0.2, 0.33)  # of the tokens, for an overview
MARGIN = (0.5, 0.25)  # of a cell, around regions: across and down
COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # of cells that are tried
SHARPENED = (
    1.5  # exponent of the relevance of cells, as of budget "auto": the small ones of many hold nothing
)
TRUSTED = 0.8  # the confidence of a choice that came without one
FLAT = (128, 128, 128)  # colour of a mask
PAPER, FRAME = (255, 255, 255), (160, 160, 160)  # colours between the parts of a strip


class Page(NamedTuple):
    """A picture and what is known of it before a layout is chosen."""

    image: Image.Image
    allocation: Allocation
    lines: tuple[Box, ...]
    height: float  # px of the print that matters
    confidence: float  # in [0, 1], that the relevant cells are those that hold the answer


def pack(
    picture: ImageSource,
    allocation: Allocation,
    tokens: int,
    rule: Rule | str | int = 32,
    layout: str = "auto",
    lines: Sequence[Box] = (),
    magnify: float = 3.0,
) -> Packed:
    """The pictures that stand for an image of which some cells were chosen.

    Args:
        picture: Whatever `open_image` takes.
        allocation: The cells that were chosen; every pixel of them is on a picture of the result.
        tokens: The most that the result may cost, at least the rule's cheapest picture.
        rule: A name of `RULES`, a `Rule`, or N: one token for each N x N px.
        layout: One of `LAYOUTS`. "auto" takes the one on which the answer is most likely read.
        lines: Boxes of lines of print in px of the picture, which no crop cuts lengthwise; none: they are looked
            for in the pixels.
        magnify: The most px that a crop may have for one of the original, 1 to 8.

    Returns:
        Pictures within the budget. If that allows the whole picture, and the provider doesn't scale it down,
        they are the picture itself, except for "mask".

    Raises:
        ValueError: a picture that can't be read, an unknown rule or layout, a clip's allocation, or too few
            tokens for any picture.
    """
    image = open_image(picture)
    spend = _checked(tokens, rule, layout, magnify)
    if allocation.grid[0] != 1:
        raise ValueError(
            f"the allocation is of a clip of {allocation.grid[0]} steps: pack its frames one by one"
        )
    whole = _whole(image, spend, layout)
    if whole is not None:
        return replace(whole, allocation=allocation)
    page = _page(image, allocation, tuple(lines) or find_lines(image), TRUSTED)
    _, plan = _best(page, _limited(spend, page), layout)
    return _drawn(page, plan, spend.rule)


def pack_for(
    picture: ImageSource,
    questions: str | Sequence[str],
    tokens: int,
    rule: Rule | str | int = 32,
    layout: str = "auto",
    selector: Selector | None = None,
    magnify: float = 3.0,
) -> Packed:
    """The pictures that stand for an image of which some questions are asked.

    Args:
        picture: Whatever `open_image` takes.
        questions: One or more; what any of them needs is shown.
        tokens: The most that the result may cost, at least the rule's cheapest picture.
        rule: A name of `RULES`, a `Rule`, or N: one token for each N x N px.
        layout: One of `LAYOUTS`. "auto" takes the one on which the answer is most likely read.
        selector: Scores the cells; None: `Selector()`, the bundled guide.
        magnify: The most px that a crop may have for one of the original, 1 to 8.

    Returns:
        Pictures within the budget, with the selector's confidence that the picture holds what is asked for. How
        many cells are kept follows from the budget.

    Raises:
        ValueError: as `pack`, and for a question without words, or none.
    """
    image = open_image(picture)
    spend = _checked(tokens, rule, layout, magnify)
    texts = [questions] if isinstance(questions, str) else list(questions)
    if not texts:
        raise ValueError("there is no question: give one, or a list of some")
    chooser = Selector() if selector is None else selector
    decisions = [chooser.decide(image, text, 1.0) for text in texts]
    found = [one.couplings[0] for one in decisions if one.couplings]
    confidence = min((one.confidence for one in found), default=None)
    every = _united([one.allocations[0] for one in decisions])
    whole = _whole(image, spend, layout)
    if whole is not None:
        return replace(whole, allocation=every, confidence=confidence)
    trust = min((_trust(one) for one in found), default=TRUSTED)
    page = _page(image, every, find_lines(image), trust)
    limited = _limited(spend, page)
    best: tuple[float, Plan, Page] | None = None
    for part in _parts(page):
        try:
            score, plan = _best(part, limited, layout)
        except _Unfit:
            continue
        if best is None or score > best[0]:
            best = score, plan, part
    if best is None:
        raise _unfit(spend)
    return replace(_drawn(best[2], best[1], spend.rule), confidence=confidence)


# ---- what is known ------------------------------------------------------------------------------------


class _Unfit(ValueError):
    """No picture fits the tokens."""


def _unfit(spend: Spend) -> _Unfit:
    return _Unfit(
        f"tokens {spend.tokens} is less than any picture costs by rule {spend.rule.name!r}: give at least "
        f"{spend.rule.cheapest}"
    )


def _checked(tokens: int, rule: Rule | str | int, layout: str, magnify: float) -> Spend:
    found = rule if isinstance(rule, Rule) else find_rule(rule)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise ValueError(
            f"tokens {tokens!r:.40} is no count of tokens: give a whole number above 0, such as 400"
        )
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r:.40} is not known: use one of {', '.join(LAYOUTS)}")
    if not MAGNIFY[0] <= magnify <= MAGNIFY[1]:
        raise ValueError(
            f"magnify {magnify!r:.40} is not within {MAGNIFY[0]:g} and {MAGNIFY[1]:g}: 3 is usual"
        )
    spend = Spend(tokens, found, float(magnify))
    if tokens < found.cheapest:
        raise _unfit(spend)
    return spend


def _page(image: Image.Image, allocation: Allocation, lines: tuple[Box, ...], confidence: float) -> Page:
    relevance = _weights(allocation)
    height = print_height(lines, [_relevance_at(relevance, line, image.size) for line in lines])
    return Page(image, allocation, lines, USUAL_PRINT if height is None else height, confidence)


def _weights(allocation: Allocation) -> NDArray[np.float64]:
    """How much of the answer each cell may hold, [H, W], adding up to 1."""
    mass = allocation.balanced[0].double().clamp_min(1e-6).pow(SHARPENED).numpy()
    return mass / mass.sum()


def _relevance_at(relevance: NDArray[np.float64], box: Box, size: tuple[int, int]) -> float:
    rows, columns = relevance.shape
    y = min(rows - 1, int((box[1] + box[3]) / 2 * rows / size[1]))
    x0, x1 = (min(columns - 1, int(x * columns / size[0])) for x in (box[0], max(box[0], box[2] - 1)))
    return float(relevance[y, x0 : x1 + 1].max())


def _limited(spend: Spend, page: Page) -> Spend:
    """The spend with the magnification above which print doesn't get easier to read."""
    return replace(spend, magnify=min(spend.magnify, max(1.0, GOOD_PRINT / page.height)))


def _trust(coupling: Coupling) -> float:
    """How far the relevance of cells is to be followed: not where a question is about all of the picture."""
    return coupling.confidence * (1 - coupling.overview) * (1 - coupling.unusual)


def _united(allocations: Sequence[Allocation]) -> Allocation:
    """One allocation with the highest relevance of each cell, all of them kept."""
    if len(allocations) == 1:
        return allocations[0]
    names = ("information", "perspectival", "participatory", "balanced")
    maps = {name: torch.stack([getattr(one, name) for one in allocations]).amax(0) for name in names}
    order = maps["balanced"].flatten().argsort(descending=True, stable=True)
    notes = dict.fromkeys(one.note for one in allocations if one.note)
    return replace(allocations[0], order=order, note="; ".join(notes) or None, **maps)


def _parts(page: Page) -> Iterator[Page]:
    """A page of which ever more of the best cells are kept."""
    every = page.allocation
    order = every.balanced.flatten().argsort(descending=True, stable=True)
    counts = sorted({min(count, every.total) for count in COUNTS})
    for count in counts:
        best = order[:count]
        keep = best.sort().values
        reasons = torch.full_like(keep, int(Reason.RELEVANT))
        positions = grid_positions(keep, every.grid)
        chosen = replace(every, keep=keep, order=best, positions=positions, reasons=reasons, budget=count)
        yield page._replace(allocation=chosen)


# ---- which layout -------------------------------------------------------------------------------------


def _best(page: Page, spend: Spend, layout: str) -> tuple[float, Plan]:
    """The best plan of a layout and its score; `_Unfit` if there is none."""
    best: tuple[float, Plan] | None = None
    for plan in _plans(page, spend, layout):
        score = _score(page, plan)
        if best is None or score > best[0]:
            best = score, plan
    if best is None:
        raise _unfit(spend)
    return best


def _plans(page: Page, spend: Spend, layout: str) -> Iterator[Plan]:
    """The plans of a layout that fit; of "auto" those of several."""
    size, boxes = page.image.size, cell_boxes(page.allocation, page.image.size)
    plans: list[Plan | None] = []
    if layout in ("auto", "shrunk", "mask"):
        whole = shrunk(size, spend)
        plans.append(whole if whole is None or layout != "mask" else replace(whole, layout="mask"))
    if layout == "crop":
        around = _regions(page, boxes, 0, 1)
        one = crops(around, size, spend)
        plans.append(None if one is None else replace(one, layout="crop"))
    separate = min(MOST_PICTURES, spend.tokens // spend.rule.cheapest)
    if layout in ("auto", "crops") and separate:
        around = _regions(page, boxes, spend.rule.patch, separate)
        plans.append(crops(around, size, spend))
    if layout in ("auto", "overview+crops") and separate > 1:
        around = _regions(page, boxes, spend.rule.patch, separate - 1)
        plans += [crops(around, size, spend, share) for share in SHARES]
    if layout in ("auto", "strip"):
        around = _regions(page, boxes, 8, MOST_IN_STRIP)
        plans += [strip(around, size, spend, share) for share in (0.0, *SHARES)]
    return (plan for plan in plans if plan is not None)


def _regions(page: Page, boxes: Sequence[PixelBox], frame: float, most: int) -> list[PixelBox]:
    _, rows, columns = page.allocation.grid
    width, height = page.image.size
    margin = math.ceil(MARGIN[0] * width / columns), math.ceil(MARGIN[1] * height / rows)
    return regions(boxes, page.lines, page.image.size, margin, frame, max(1, most))


def _score(page: Page, plan: Plan) -> float:
    """The chance that the answer is on what is sent and can be read there, with what helps beside that."""
    relevance = _weights(page.allocation)
    shown = np.zeros(relevance.shape, dtype=bool)
    rows, columns = relevance.shape
    width, height = page.image.size
    for part in plan.parts:
        if not part.overview:
            x0, y0, x1, y1 = part.origin  # cells whose middle is shown
            across = (round(x0 * columns / width), round(x1 * columns / width))
            down = (round(y0 * rows / height), round(y1 * rows / height))
            shown[down[0] : down[1], across[0] : across[1]] = True
    trust = page.confidence
    held = trust * float(relevance[shown].sum()) + (1 - trust) * float(shown.mean())
    if plan.layout in ("shrunk", "mask"):
        return _readable(page.height * plan.scale) + _comfort(page.height * plan.scale) + CONTEXT
    around = _readable(page.height * plan.overview) if plan.overview else 0.0
    score = held * _readable(page.height * plan.scale) + (1 - held) * around
    return score + _comfort(page.height * plan.scale) + CONTEXT * (plan.overview > 0)


def _readable(height: float) -> float:
    """The chance that a line of print of some px is read."""
    return 1 / (1 + math.exp(min(50.0, (READABLE - height) / SHARPNESS)))


def _comfort(height: float) -> float:
    """What print that is higher than just readable is worth."""
    least, worth = COMFORT
    more = min(1.0, max(0.0, height / least)) + 0.25 * min(1.0, max(0.0, height / least - 1))
    return worth * more


# ---- pixels -------------------------------------------------------------------------------------------


def _whole(image: Image.Image, spend: Spend, layout: str) -> Packed | None:
    """The picture itself if the budget allows it and the provider reads it at its size."""
    cost = spend.rule.tokens(*image.size)
    read = spend.rule.seen(*image.size)
    reduced = any(part < 0.98 * side for part, side in zip(read, image.size, strict=True))
    if layout == "mask" or cost > spend.tokens or reduced:
        return None
    box = (0.0, 0.0, float(image.width), float(image.height))
    place = Place(0, box, box, 1.0)
    captions = (f"The picture, {image.width} x {image.height} px.",)
    return Packed((image,), captions, (place,), image.size, cost, cost, "whole", spend.rule.name)


def _drawn(page: Page, plan: Plan, rule: Rule) -> Packed:
    """The pictures of a plan."""
    image = _masked(page) if plan.layout == "mask" else page.image
    pictures: list[Image.Image] = []
    for number, size in enumerate(plan.sizes):
        parts = [part for part in plan.parts if part.picture == number]
        if plan.layout == "strip":
            canvas = Image.new("RGB", size, PAPER)
            for part in parts:
                _frame(canvas, part)
                canvas.paste(_cut(image, part), part.at)
            pictures.append(canvas)
        else:
            pictures.append(_cut(image, parts[0]))
    places = tuple(_place(part) for part in sorted(plan.parts, key=lambda part: part.overview))
    return Packed(
        tuple(pictures),
        _captions(page.image.size, plan),
        places,
        page.image.size,
        plan.tokens,
        rule.tokens(*page.image.size),
        plan.layout,
        rule.name,
        None,
        page.allocation,
    )


def _cut(image: Image.Image, part: Part) -> Image.Image:
    """A part of the original at its size, from the original's own pixels."""
    region = image.crop(part.origin)
    return region if region.size == part.size else region.resize(part.size, Image.Resampling.LANCZOS)


def _frame(canvas: Image.Image, part: Part) -> None:
    (x, y), (width, height) = part.at, part.size
    canvas.paste(FRAME, (x - 1, y - 1, x + width + 1, y + height + 1))


def _masked(page: Page) -> Image.Image:
    """The picture with all but its regions flat."""
    masked = Image.new("RGB", page.image.size, FLAT)
    for box in _regions(page, cell_boxes(page.allocation, page.image.size), 0, page.allocation.total):
        masked.paste(page.image.crop(box), box[:2])
    return masked


def _place(part: Part) -> Place:
    x0, y0, x1, y1 = part.origin
    origin = (float(x0), float(y0), float(x1), float(y1))
    factor = math.sqrt(math.prod(part.size) / ((x1 - x0) * (y1 - y0)))
    return Place(part.picture, box_of(part), origin, factor)


# ---- captions -----------------------------------------------------------------------------------------


def _captions(size: tuple[int, int], plan: Plan) -> tuple[str, ...]:
    """A sentence for each picture."""
    if plan.layout == "mask":
        return (f"The picture of {size[0]} x {size[1]} px; what a question doesn't need is gray.",)
    if plan.layout == "shrunk":
        return (f"The whole picture of {size[0]} x {size[1]} px, scaled to {_percent(plan.parts[0])}.",)
    details = [part for part in plan.parts if not part.overview]
    if plan.layout == "strip":
        where = "; ".join(_where(part, size) for part in details)
        above = "Above an overview of the picture, below it" if plan.overview else "Stacked in reading order,"
        count = f"{len(details)} part{'s' * (len(details) > 1)} of a picture of {size[0]} x {size[1]} px"
        return (f"{above} {count}: {where}.",)
    captions = []
    for part in plan.parts:
        if part.overview:
            text = f"An overview of the whole picture of {size[0]} x {size[1]} px, at {_percent(part)}."
        else:
            number = f"Detail {details.index(part) + 1} of {len(details)}" if len(details) > 1 else "A detail"
            text = f"{number} of the picture of {size[0]} x {size[1]} px: {_where(part, size)}."
        captions.append(text)
    return tuple(captions)


def _percent(part: Part) -> str:
    return f"{100 * part.size[0] / (part.origin[2] - part.origin[0]):.0f} % of its size"


def _where(part: Part, size: tuple[int, int]) -> str:
    """Where a part lies in the original, in words and px."""
    x0, y0, x1, y1 = part.origin
    row = _third((y0 + y1) / 2 / size[1], ("top", "middle", "bottom"))
    column = _third((x0 + x1) / 2 / size[0], ("left", "centre", "right"))
    return f"{row} {column}, x {x0} to {x1}, y {y0} to {y1} px, at {_percent(part)}"


def _third(share: float, names: tuple[str, str, str]) -> str:
    return names[min(2, int(3 * share))]
