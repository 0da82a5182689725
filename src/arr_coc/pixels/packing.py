"""Packing: pictures that stand for an image within a budget of tokens, with what a question needs enlarged.

pack_for(image, "What is the total?", tokens=256, rule="claude")    chooses and packs
pack(image, allocation, tokens=256, rule=32)                        packs what was chosen elsewhere

Which layout and how many cells: each candidate is judged by the chance that the answer is on what is sent,
and is high enough there to be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation, Reason, grid_positions
from arr_coc.choose.boxes import Box
from arr_coc.choose.budget import Budget
from arr_coc.files.images import ImageSource, open_image
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.deciding import Decision
from arr_coc.guide.selector import Selector
from arr_coc.pixels.lines import PixelBox, PrintInk, find_ink, find_lines, print_height
from arr_coc.pixels.packed import Packed, Place
from arr_coc.pixels.planning import (
    MOST_IN_STRIP,
    MOST_PICTURES,
    Fragment,
    Plan,
    Spend,
    box_of,
    cost,
    crops,
    kept,
    shrunk,
    strip,
)
from arr_coc.pixels.regions import cell_boxes, regions, with_lines
from arr_coc.pixels.rules import Rule, find_rule

LAYOUTS = ("auto", "overview+crops", "crops", "strip", "crop", "mask", "shrunk")
"""Layouts by name; "crops" is "overview+crops" without the overview, "shrunk" the whole picture, smaller."""
FALLBACKS = ("crops", "crop", "shrunk")  # layouts in place of one that doesn't fit
SINGLE = ("strip", "crop", "mask")  # layouts of one picture, in place of which none of several is taken
MAGNIFY = (1.0, 8.0)  # the least and the most that `magnify` may be
GOOD_PRINT = 24.0  # px of a line of print above which nothing is gained
USUAL_PRINT = 14.0  # px, assumed where there is no print: details of a photograph
READABLE = 6.5  # px of a line of print of which a model reads half of all lines; RapidOCR needs 5.4
SHARPNESS = 0.2  # of that height, by which a line has to be higher to be read three times in four
READERS = (2.0, 40.0)  # px that `readable` may be
COMFORT = (12.0, 0.04)  # px of a line that any model reads, and what that is worth
ALONE = 0.01  # what each crop more takes away: parts of a picture are harder to understand
CONTEXT = 0.04  # what an overview is worth beside what can be read on it
SHARES = (0.12, 0.2, 0.33)  # of the tokens, for an overview
MARGIN = (0.5, 0.25)  # of a cell, around regions: across and down
COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # of cells that are tried
HELD = 0.9  # of the relevance of the best cells, that regions have to hold together
WIDEST_FRAME = 64  # px of a patch, of those larger than which none is wasted on a region
LEAST_SCALE = 0.25  # of regions, where their frames are estimated
TRUSTED = 0.8  # the confidence of a choice that came without one
PAID_WHOLE = ("squares", "patches", "padded")  # ways of counting by which a part of a patch costs a whole one
FLAT = (128, 128, 128)  # colour of a mask
PAPER, FRAME = (255, 255, 255), (160, 160, 160)  # colours between the parts of a strip


class Decider(Protocol):
    """Chooses cells of a picture by a question, as a `Selector` does."""

    def decide(self, picture: ImageSource, question: str, budget: Budget | None = None) -> Decision: ...


class Candidate(NamedTuple):
    """A picture, cells of it that might be kept, and what is known of its print."""

    image: Image.Image
    allocation: Allocation
    relevance: NDArray[np.float64]  # how much of the answer each cell may hold, [H, W], adding up to 1
    lines: tuple[Box, ...]
    ink: PrintInk
    height: float  # px of the print that matters
    readable: float  # px of a line of print that is read half of the time
    confidence: float  # in [0, 1], that the relevant cells are those that hold the answer


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
    """The pictures that stand for an image of which some cells were chosen.

    Args:
        picture: Whatever `open_image` takes.
        allocation: The cells that were chosen; every pixel of them is on a picture of the result.
        tokens: The most that the result may cost, at least the rule's cheapest picture.
        rule: A name of `RULES`, a `Rule`, or N: one token for each N x N px.
        layout: One of `LAYOUTS`. "auto" takes the one on which the answer is most likely read.
        lines: Boxes of lines of print in px of the picture, which no crop cuts lengthwise; none: they are
            looked for in the pixels.
        magnify: The most px that a crop may have for one of the original, 1 to 8.
        readable: Px of a line of print that the reader still reads half of the time, 2 to 40, by which "auto"
            chooses: 5 for a strong OCR; about 9 for a model that reads small print badly.

    Returns:
        Pictures within the budget. If that allows the whole picture, and the provider doesn't scale it down,
        they are the picture itself, except for "mask".

    Raises:
        ValueError: a picture that can't be read, an unknown rule or layout, a clip's allocation, or too few
            tokens for any picture.
    """
    image = open_image(picture)
    spend = _checked(tokens, rule, layout, magnify, readable)
    if allocation.grid[0] != 1:
        raise ValueError(
            f"the allocation is of a clip of {allocation.grid[0]} steps: pack its frames one by one"
        )
    whole = _whole(image, spend, layout)
    if whole is not None:
        return replace(whole, allocation=allocation)
    page = _page(image, allocation, tuple(lines), TRUSTED, readable)
    _, plan = _best(page, _limited(spend, page), layout)
    return _drawn(page, plan, spend.rule)


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
    """The pictures that stand for an image of which some questions are asked.

    Args:
        picture: Whatever `open_image` takes.
        questions: One or more; what any of them needs is shown.
        tokens: The most that the result may cost, at least the rule's cheapest picture.
        rule: A name of `RULES`, a `Rule`, or N: one token for each N x N px.
        layout: One of `LAYOUTS`. "auto" takes the one on which the answer is most likely read.
        selector: Scores the cells; None: `Selector()`, the bundled guide.
        magnify: The most px that a crop may have for one of the original, 1 to 8.
        readable: Px of a line of print that the reader still reads half of the time, 2 to 40, by which "auto"
            chooses: 5 for a strong OCR; about 9 for a model that reads small print badly.

    Returns:
        Pictures within the budget, with the selector's confidence that the picture holds what is asked for.
        How many cells are kept follows from the budget.

    Raises:
        ValueError: as `pack`, and for a question without words, or none.
    """
    image = open_image(picture)
    spend = _checked(tokens, rule, layout, magnify, readable)
    texts = [questions] if isinstance(questions, str) else list(questions)
    if not texts:
        raise ValueError("there is no question: give one, or a list of some")
    chooser: Decider = Selector() if selector is None else selector
    decisions = [chooser.decide(image, text, 1.0) for text in texts]
    couplings = [one.couplings[0] for one in decisions if one.couplings]
    confidence = min((one.confidence for one in couplings), default=None)
    every = _united([one.allocations[0] for one in decisions])
    whole = _whole(image, spend, layout)
    if whole is not None:
        return replace(whole, allocation=every, confidence=confidence)
    trust = min((_trust(one) for one in couplings), default=TRUSTED)
    page = _page(image, every, (), trust, readable)
    limited = _limited(spend, page)
    best: tuple[float, Plan, Candidate] | None = None
    for part in _parts(page, limited):
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


def _checked(tokens: int, rule: Rule | str | int, layout: str, magnify: float, readable: float) -> Spend:
    own = rule if isinstance(rule, Rule) else find_rule(rule)
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
    if not READERS[0] <= readable <= READERS[1]:
        raise ValueError(
            f"readable {readable!r:.40} is not within {READERS[0]:g} and {READERS[1]:g} px: 6.5 is usual"
        )
    spend = Spend(tokens, own, float(magnify))
    if tokens < own.cheapest:
        raise _unfit(spend)
    return spend


def _page(
    image: Image.Image, allocation: Allocation, lines: tuple[Box, ...], confidence: float, readable: float
) -> Candidate:
    ink = find_ink(image)
    lines = lines or find_lines(ink)
    relevance = _weights(allocation)
    height = print_height(lines, [_relevance_at(relevance, line, image.size) for line in lines])
    height = USUAL_PRINT if height is None else height
    return Candidate(image, allocation, relevance, lines, ink, height, readable, confidence)


def _weights(allocation: Allocation) -> NDArray[np.float64]:
    """How much of the answer each cell may hold, [H, W], adding up to 1."""
    mass = allocation.balanced[0].double().clamp_min(1e-6).numpy()
    return mass / mass.sum()


def _relevance_at(relevance: NDArray[np.float64], box: Box, size: tuple[int, int]) -> float:
    rows, columns = relevance.shape
    y = min(rows - 1, int((box[1] + box[3]) / 2 * rows / size[1]))
    x0, x1 = (min(columns - 1, int(x * columns / size[0])) for x in (box[0], max(box[0], box[2] - 1)))
    return float(relevance[y, x0 : x1 + 1].max())


def _limited(spend: Spend, page: Candidate) -> Spend:
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


def _parts(page: Candidate, spend: Spend) -> Iterator[Candidate]:
    """A page of which ever more of the best cells are kept, less those in regions that hold little."""
    every = page.allocation
    order = every.balanced.flatten().argsort(descending=True, stable=True)
    before: Tensor | None = None
    for count in sorted({min(count, every.total) for count in COUNTS}):
        best = order[:count]
        inside = _in_dense_regions(page._replace(allocation=_keeping(every, best)), spend)
        best = best[torch.isin(best, inside)]
        if before is None or not torch.equal(before, best):
            yield page._replace(allocation=_keeping(every, best))
        before = best


def _keeping(every: Allocation, best: Tensor) -> Allocation:
    """An allocation of the same cells that keeps some, most relevant first."""
    keep = best.sort().values
    reasons = torch.full_like(keep, int(Reason.RELEVANT))
    positions = grid_positions(keep, every.grid)
    return replace(every, keep=keep, order=best, positions=positions, reasons=reasons, budget=len(keep))


def _in_dense_regions(page: Candidate, spend: Spend) -> Tensor:
    """The kept cells in the densest regions, as many as hold HELD of the relevance of all together."""
    boxes = cell_boxes(page.allocation, page.image.size)
    around = _regions(page, boxes, _frame_of(boxes, spend), MOST_IN_STRIP)
    held = [_held(page.relevance, box, page.image.size) for box in around]
    density = [one / _area(box) for one, box in zip(held, around, strict=True)]
    most, total, chosen = HELD * sum(held), 0.0, []
    for index in sorted(range(len(around)), key=lambda index: -density[index]):
        if total >= most:
            break
        chosen.append(around[index])
        total += held[index]
    _, rows, columns = page.allocation.grid
    inside = np.zeros((rows, columns), dtype=bool)
    for box in chosen:
        inside[_cells_in(box, page.image.size, (rows, columns))] = True
    flat = torch.from_numpy(inside.flatten())
    return page.allocation.keep[flat[page.allocation.keep]]


def _area(box: PixelBox) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def _cells_in(box: PixelBox, size: tuple[int, int], grid: tuple[int, int]) -> tuple[slice, slice]:
    """The rows and columns of the cells whose middle lies in a box, at least one each."""
    sides = []
    for low, high, side, cells in ((box[1], box[3], size[1], grid[0]), (box[0], box[2], size[0], grid[1])):
        first = min(cells - 1, math.ceil(low * cells / side - 0.5))
        sides.append(slice(first, max(first + 1, math.ceil(high * cells / side - 0.5))))
    return sides[0], sides[1]


def _held(relevance: NDArray[np.float64], box: PixelBox, size: tuple[int, int]) -> float:
    """The relevance of the cells in a box."""
    rows, columns = relevance.shape
    return float(relevance[_cells_in(box, size, (rows, columns))].sum())


def _frame_of(boxes: Sequence[PixelBox], spend: Spend) -> float:
    """What rounding up to whole patches adds to a side of a region of cells, in px of the original."""
    area = sum(map(_area, boxes))
    patch = min(spend.rule.patch, WIDEST_FRAME)
    scale = math.sqrt(spend.tokens * patch**2 / max(1, area))
    return patch / min(max(scale, LEAST_SCALE), spend.magnify)


# ---- which layout -------------------------------------------------------------------------------------


def _best(page: Candidate, spend: Spend, layout: str) -> tuple[float, Plan]:
    """The best plan of a layout and its score.

    Where nothing of a layout fits, as an overview beside crops in very few tokens, the next of FALLBACKS is
    taken; `_Unfit` if none of them fits.
    """
    for name in (layout, *FALLBACKS[layout in SINGLE :]):
        scored = [(_score(page, plan), plan) for plan in _plans(page, spend, name)]
        if scored:
            return max(scored, key=lambda one: one[0])
    raise _unfit(spend)


def _plans(page: Candidate, spend: Spend, layout: str) -> Iterator[Plan]:
    """The plans of a layout that fit; of "auto" those of several."""
    size, boxes = page.image.size, cell_boxes(page.allocation, page.image.size)
    frame = _frame_of(boxes, spend)
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
        around = _regions(page, boxes, frame, separate)
        plans.append(crops(around, size, spend))
    if layout in ("auto", "overview+crops") and separate > 1:
        around = _regions(page, boxes, frame, separate - 1)
        plans += [crops(around, size, spend, share) for share in SHARES]
    if layout in ("auto", "strip"):
        around = _regions(page, boxes, 8, MOST_IN_STRIP)
        plans += [strip(around, size, spend, share) for share in (0.0, *SHARES)]
    return (_to_whole_patches(page, plan, spend) for plan in plans if plan is not None)


def _to_whole_patches(page: Candidate, plan: Plan, spend: Spend) -> Plan:
    """The same plan with more around its regions, where that costs nothing: patches are paid whole."""
    if plan.layout not in ("crop", "crops", "overview+crops") or spend.rule.way not in PAID_WHOLE:
        return plan
    pieces = tuple(
        piece if piece.overview else _spread(page, piece, spend.rule.patch) for piece in plan.pieces
    )
    sizes = tuple(piece.size for piece in pieces)
    if not kept(sizes, spend.rule) or (spent := cost(sizes, spend.rule)) > plan.tokens:
        return plan
    return replace(plan, pieces=pieces, sizes=sizes, tokens=spent)


def _spread(page: Candidate, piece: Fragment, patch: int) -> Fragment:
    """A region grown to whole patches, or as far as no line of print is cut."""
    x0, y0, x1, y1 = piece.origin
    scale = (piece.size[0] / (x1 - x0), piece.size[1] / (y1 - y0))
    target = [-(-side // patch) * patch for side in piece.size]
    across, down = (
        int((goal - side) / part / 2) for goal, side, part in zip(target, piece.size, scale, strict=True)
    )
    lines = np.array(page.lines, dtype=np.float64).reshape(-1, 4)
    for margin in ((across, down), (0, down)):
        box = with_lines(piece.origin, lines, page.image.size, margin)
        size = round((box[2] - box[0]) * scale[0]), round((box[3] - box[1]) * scale[1])
        if size[0] <= target[0] and size[1] <= target[1]:
            return replace(piece, origin=box, size=size)
    return piece


def _regions(page: Candidate, boxes: Sequence[PixelBox], frame: float, most: int) -> list[PixelBox]:
    _, rows, columns = page.allocation.grid
    width, height = page.image.size
    margin = math.ceil(MARGIN[0] * width / columns), math.ceil(MARGIN[1] * height / rows)
    return regions(boxes, page.lines, page.image.size, margin, frame, max(1, most), page.ink)


def _score(page: Candidate, plan: Plan) -> float:
    """The chance that the answer is on what is sent and can be read there, with what helps beside that."""
    sent = np.zeros(page.relevance.shape, dtype=bool)
    for piece in plan.pieces:
        if not piece.overview:
            sent[_cells_in(piece.origin, page.image.size, page.allocation.grid[1:])] = True
    trust = page.confidence
    held = trust * float(page.relevance[sent].sum()) + (1 - trust) * float(sent.mean())
    scale, height = plan.scale, page.height
    if plan.layout in ("shrunk", "mask"):
        return _read_share(height * scale, page.readable) + _comfort(height * scale) + CONTEXT
    around = _read_share(height * plan.overview, page.readable) if plan.overview else 0.0
    score = held * _read_share(height * scale, page.readable) + (1 - held) * around
    alone = ALONE * sum(not piece.overview for piece in plan.pieces)
    return score + _comfort(height * scale) + CONTEXT * (plan.overview > 0) - alone


def _read_share(height: float, readable: float) -> float:
    """The share of lines of print of some px that is read, where half of those of `readable` px are."""
    return 1 / (1 + math.exp(min(50.0, (readable - height) / (SHARPNESS * readable))))


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


def _drawn(page: Candidate, plan: Plan, rule: Rule) -> Packed:
    """The pictures of a plan."""
    image = _masked(page) if plan.layout == "mask" else page.image
    pictures: list[Image.Image] = []
    for number, size in enumerate(plan.sizes):
        parts = [part for part in plan.pieces if part.picture == number]
        if plan.layout == "strip":
            canvas = Image.new("RGB", size, PAPER)
            for part in parts:
                _frame(canvas, part)
                canvas.paste(_cut(image, part), part.at)
            pictures.append(canvas)
        else:
            pictures.append(_cut(image, parts[0]))
    places = tuple(_place(part) for part in sorted(plan.pieces, key=lambda part: part.overview))
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


def _cut(image: Image.Image, part: Fragment) -> Image.Image:
    """A part of the original at its size, from the original's own pixels."""
    region = image.crop(part.origin)
    return region if region.size == part.size else region.resize(part.size, Image.Resampling.LANCZOS)


def _frame(canvas: Image.Image, part: Fragment) -> None:
    (x, y), (width, height) = part.at, part.size
    canvas.paste(FRAME, (x - 1, y - 1, x + width + 1, y + height + 1))


def _masked(page: Candidate) -> Image.Image:
    """The picture with all but its regions flat."""
    masked = Image.new("RGB", page.image.size, FLAT)
    for box in _regions(page, cell_boxes(page.allocation, page.image.size), 0, page.allocation.total):
        masked.paste(page.image.crop(box), box[:2])
    return masked


def _place(part: Fragment) -> Place:
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
    """Where a part lies in the original, in words and px."""
    x0, y0, x1, y1 = part.origin
    row = _third((y0 + y1) / 2 / size[1], ("top", "middle", "bottom"))
    column = _third((x0 + x1) / 2 / size[0], ("left", "centre", "right"))
    return f"{row} {column}, x {x0} to {x1}, y {y0} to {y1} px, at {_percent(part)}"


def _third(share: float, names: tuple[str, str, str]) -> str:
    return names[min(2, int(3 * share))]
