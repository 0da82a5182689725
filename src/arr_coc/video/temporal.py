"""Time: what is new in each frame of a clip, relevance over time, and moments that a question names.

changes = Changes.of(frames, (H, W))            per frame: is it a cut, how far it moved, which cells are new
relevance_over_time(logits, changes)            [T, H, W] logits -> [T, H, W] logits, to be ranked together
moment_of("What is shown at 5.5 seconds?")      Moment(5.5, 5.5)
event_of("What does it say while it is red?")   "it is red"
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.motion import CUT, OLD, covered, layer_shift, moved

# Points along a side of a cell, for shifts, and of a block of points, on whose mean content is compared:
# there what moved by a part of a point is the same.
POINTS_PER_CELL, BLOCK_POINTS = 16, 2
NEW_DIFFERENCE = 0.06  # mean absolute difference of new content, in the block of a cell that differs most
REPEATED_WORTH = 1e-6  # share of its relevance that a cell keeps where its content was there before
NEIGHBOUR_WORTH = 0.3  # the same of a cell beside a new one: a thing reaches beyond the cells that differ
# bounds of the factor by which all light may change, and rounds of its fit
LIGHT_FACTORS, LIGHT_ROUNDS = (0.5, 2.0), 4


@dataclass(frozen=True)
class Changes:
    """What changes from frame to frame of a clip.

    Attributes:
        cuts: Bool [T], frames that begin a scene; the first one does.
        shifts: Float [T, 2], cells (down, right) that the picture moved since the frame before; 0 at a cut.
        new: Bool [T, H, W], cells whose content was not there before, here or where it moved from.
        differences: Float [T], the mean absolute difference to the frame before, in [0, 1].
        still: Bool [T, H, W], cells that stood still though the picture moved, or None.
        worth: Float [T], share of its relevance that each frame keeps; None: the question names no moment.
        ends: Whether the last frame of what changes counts as much as the first of what it becomes, as both
            sides of a change answer "when does it go?".
    """

    cuts: Tensor
    shifts: Tensor
    new: Tensor
    differences: Tensor
    still: Tensor | None = None
    worth: Tensor | None = None
    ends: bool = False

    @classmethod
    def of(cls, frames: Iterable[Tensor], grid: tuple[int, int]) -> Changes:
        """Return the changes of a clip's frames, float [3, h, w] in [0, 1] each, on a grid (H, W).

        One frame is held at a time.
        """
        tracker = Tracker(grid)
        return cls.joined([tracker(frame) for frame in frames])

    @classmethod
    def joined(cls, steps: Sequence[Change]) -> Changes:
        """Return the changes of a clip, from those of its frames in order."""
        if not steps:
            raise ValueError("a clip without frames has no changes: give at least one frame")
        cuts, shifts, new, differences, still = zip(*steps, strict=True)
        return cls(
            torch.tensor(cuts),
            torch.tensor(shifts),
            torch.stack(new),
            torch.tensor(differences),
            torch.stack(still),
        )

    def at(self, question: str, times: Sequence[float] | None = None, event: Tensor | None = None) -> Changes:
        """Return the same changes for a question, which may name a moment: where that begins everything is
        new.

        `times` are the seconds at which each frame begins, `event` float [T, H, W] the logits of what happens
        at the question's moment (`event_of`); None: not known.
        """
        ends, moment = asks_when(question), moment_of(question)
        worth = None if moment is None else moment.worth(times, len(self.cuts))
        if worth is None and event is not None:
            worth = moment_shown(_smooth(event.float().sigmoid(), self) * self.new.to(event.device))
        if worth is None:
            return replace(self, ends=True) if ends else self
        return replace(self, worth=worth, ends=ends)

    @property
    def fresh(self) -> Tensor:
        """Share of its relevance that each cell keeps by what is new, float [T, H, W] in [0, 1]."""
        fresh = self.changed
        if self.worth is not None:
            fresh[int((self.worth == 1).nonzero()[0])] = 1.0  # the moment's first frame
        return fresh.clamp_min(REPEATED_WORTH)

    @property
    def changed(self) -> Tensor:
        """1 for cells that are new, `NEIGHBOUR_WORTH` for those beside one, else 0: float [T, H, W]."""
        new = self.new.float()
        return torch.maximum(new, NEIGHBOUR_WORTH * F.max_pool2d(new[:, None], 3, 1, padding=1)[:, 0])

    def carried(self, maps: Tensor, t: int) -> Tensor:
        """Return a map [H, W] of the frame before frame `t`, where its content is now."""
        along = _along(maps, self.shifts[t])
        return along if self.still is None else torch.where(self.still[t].to(maps.device), maps, along)

    def back(self, maps: Tensor, t: int) -> Tensor:
        """Return a map [H, W] of frame `t`, where its content was in the frame before."""
        along = _along(maps, -self.shifts[t])
        return along if self.still is None else torch.where(self.still[t].to(maps.device), maps, along)

    @property
    def repeated(self) -> list[bool]:
        """Per frame whether it shows what the one before showed, at the same place."""
        moved = self.shifts.any(1) | self.new.flatten(1).any(1)
        return (~moved).tolist()


class Change(NamedTuple):
    """What changes from one frame to the next; the fields are those of `Changes` of one frame."""

    cut: bool
    shift: tuple[float, float]
    new: Tensor
    difference: float
    still: Tensor

    @property
    def grid(self) -> tuple[int, int]:
        height, width = self.new.shape
        return height, width

    @property
    def repeated(self) -> bool:
        """Whether the frame shows what the one before showed, at the same place."""
        return not any(self.shift) and not bool(self.new.any())


class Tracker:
    """Compares each frame of a clip with what was there before, in memory that doesn't grow with the clip."""

    def __init__(self, grid: tuple[int, int]) -> None:
        self.grid = grid
        self._last: Tensor | None = None
        self._reference: Tensor | None = None  # what was last new at each point, moved along

    def __call__(self, frame: Tensor) -> Change:
        """Return what is new in the next frame, float [3, h, w] in [0, 1]."""
        # (3, H * 16, W * 16): a fixed number of points per cell, whatever the frame's resolution.
        small = F.adaptive_avg_pool2d(
            frame.float(), (self.grid[0] * POINTS_PER_CELL, self.grid[1] * POINTS_PER_CELL)
        )
        last, reference = self._last, self._reference
        difference = 0.0 if last is None else float((small - last).abs().mean())
        self._last = small
        if last is None or reference is None or difference > CUT:
            self._reference = small
            every = torch.ones(self.grid, dtype=torch.bool)
            return Change(True, (0.0, 0.0), every, difference, ~every)
        down, right = layer_shift(last[None], small[None])[0].tolist()  # in points
        everywhere = torch.ones_like(small[0], dtype=torch.bool)
        apart = _apart(small, reference, everywhere)
        still = torch.zeros_like(apart, dtype=torch.bool)
        if down or right:
            along, inside = _moved(reference, (down, right))
            moving = _apart(small, along, inside)
            # A cell counts as new only if it fits neither hypothesis: it stood, or it moved along.
            still, apart = apart < moving, torch.minimum(apart, moving)
            reference = torch.where(_points(still), reference, along)
        new = apart > NEW_DIFFERENCE
        # Only new content enters the reference: slow changes add up until they count.
        self._reference = torch.where(_points(new), small, reference)
        return Change(
            False, (down / POINTS_PER_CELL, right / POINTS_PER_CELL), new.cpu(), difference, still.cpu()
        )


def relevance_over_time(logits: Tensor, changes: Changes) -> Tensor:
    """Logits of relevance that can be ranked over a whole clip, [T, H, W], from those of single frames.

    They are smoothed over time (`OLD` of the frame before, moved with the picture), and lowered where content
    was there before and outside of the moment that the question names.
    """
    smooth = _smooth(logits.float().sigmoid(), changes)
    worth = changes.fresh.to(smooth)
    if changes.ends:
        smooth, worth = _with_ends(smooth, worth, changes)
    if changes.worth is not None:
        worth = worth * changes.worth.to(worth)[:, None, None]
    # In logarithms, so that cells of which nothing is expected keep an order, too.
    total = (smooth * worth).clamp(1e-12, 1 - 1e-6)
    return total.log() - (-total).log1p()


def _smooth(chance: Tensor, changes: Changes) -> Tensor:
    """Chances [T, H, W] smoothed over time, from the start where a cell is new."""
    smooth = [chance[0]]
    for t in range(1, len(chance)):
        mixed = OLD * changes.carried(smooth[-1], t) + (1 - OLD) * chance[t]
        smooth.append(torch.where(changes.new[t].to(chance.device), chance[t], mixed))
    return torch.stack(smooth)


def _with_ends(smooth: Tensor, worth: Tensor, changes: Changes) -> tuple[Tensor, Tensor]:
    """Chances and worths [T, H, W] in which a cell that is about to change is like the one it becomes."""
    smooth, worth, changed = smooth.clone(), worth.clone(), changes.changed.to(smooth)
    for t in range(len(smooth) - 1):
        ending = changes.back(changed[t + 1], t + 1)
        both = torch.maximum(smooth[t], changes.back(smooth[t + 1], t + 1))
        smooth[t] = torch.where(ending > REPEATED_WORTH, both, smooth[t])
        worth[t] = torch.maximum(worth[t], ending)
    return smooth, worth


def _moved(picture: Tensor, shift: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Return a picture [3, h, w] moved by points (down, right), and where it still covers the frame, bool
    [h, w].
    """
    size, by = (picture.shape[-2], picture.shape[-1]), torch.tensor([shift], device=picture.device)
    inside = covered(size, by)[0]
    down, right = shift
    if down == round(down) and right == round(right):
        return picture.roll((round(down), round(right)), (-2, -1)), inside
    return moved(picture[None], by / by.new_tensor(size), "border")[0], inside


def _apart(frame: Tensor, reference: Tensor, inside: Tensor) -> Tensor:
    """Return how far the content of each cell is from the reference's, [H, W]; infinite where that is
    outside.

    The mean absolute difference in the block that differs most. A change of all light is no difference.
    """
    fine, before = F.avg_pool2d(frame, BLOCK_POINTS), F.avg_pool2d(reference, BLOCK_POINTS)
    outside = F.max_pool2d((~inside).float()[None], BLOCK_POINTS)[0] > 0
    if not bool(outside.all()):
        factor, amount = _light(before[:, ~outside], fine[:, ~outside])
        before = factor * before + amount[:, None, None]
    apart = (fine - before).abs().mean(0).masked_fill(outside, torch.inf)
    return F.max_pool2d(apart[None], POINTS_PER_CELL // BLOCK_POINTS)[0]


def _light(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor, and the amount in each channel [c], by which the light of points [c, n] has
    changed.
    """
    factor, amount = before.new_ones(()), (after - before).median(1).values
    for _ in range(LIGHT_ROUNDS):
        rest = (after - factor * before - amount[:, None]).abs().mean(0)
        near = (rest <= 2.5 * rest.median() + 0.01).float()
        middles = [(side * near).sum(1) / near.sum() for side in (before, after)]
        a, b = (
            (side - middle[:, None]) * near for side, middle in zip((before, after), middles, strict=True)
        )
        # On a blank picture there is no telling a factor from an amount.
        even = a.square().sum() <= 1e-4 * near.sum()
        factor = torch.where(
            even, 1.0, ((a * b).sum() / a.square().sum().clamp_min(1e-12)).clamp(*LIGHT_FACTORS)
        )
        amount = middles[1] - factor * middles[0]
    return factor, amount


def _points(cells: Tensor) -> Tensor:
    return cells.repeat_interleave(POINTS_PER_CELL, 0).repeat_interleave(POINTS_PER_CELL, 1)


def _along(relevance: Tensor, shift: Tensor) -> Tensor:
    """Return a map [H, W] moved by (down, right) cells; what comes in from outside repeats the border."""
    if not bool(shift.any()):
        return relevance
    share = shift / shift.new_tensor(relevance.shape)
    return moved(relevance[None, None], share[None].to(relevance.device), "border")[0, 0]


# Moments. Only what a question says outright is read: seconds and minutes, times such as 1:05, and the clip's
# start and end. When an event takes place that it names is left to what the frames show (`moment_shown`).

# Share of its relevance that a step keeps outside of a moment told in seconds, and outside of the clip's
# start or end or an event, which a question may mean otherwise ("the last line").
OUTSIDE_EXACT, OUTSIDE_VAGUE = 0.05, 0.1
EVENT_CELLS = 4  # the best cells of a step by whose mean the step is found in which an event shows
EDGE_SHARE = 0.1  # share of a clip that is its start or its end

_CLOCK = r"(?:(?P<hours{0}>\d+):)?(?P<minutes{0}>\d{{1,3}}):(?P<seconds{0}>\d\d(?:\.\d+)?)"
_COUNT = r"(?P<number{0}>\d+(?:\.\d+)?)(?:[- ]?(?P<unit{0}>s|secs?|seconds?|min|mins|minutes?))?"
_POINT = rf"(?:(?:the )?(?P<named{{0}}>seconds?|minutes?) )?(?:{_CLOCK}|{_COUNT})"


def _point(tag: str) -> str:
    return _POINT.format(tag)


_BETWEEN = re.compile(
    rf"\b(?:between|from) {_point('a')}\s*(?:and|to|until|till|-|\u2013)\s*{_point('b')}\b", re.I
)
_AT = re.compile(
    rf"\b(?P<word>at|around|about|after|before|until|till|by|from|since) (?:time(?:stamp)? )?{_point('a')}"
    r"(?![\w:%])",
    re.I,
)
_SPAN = re.compile(rf"\b(?P<word>first|last|final|opening|closing) {_COUNT.format('a')}(?![\w:%])", re.I)
_START = re.compile(
    r"\b(?:(?:at|in|from) (?:the )?(?:very )?(?:start|beginning|opening)|at first|initially|originally"
    r"|(?:begins?|starts?) with|the (?:very )?(?:first|opening|initial) (?!time\b|of\b|second\b|minute\b))",
    re.I,
)
_END = re.compile(
    r"\b(?:(?:at|in|by|to|until) the (?:very )?end|finally|(?:ends?|closes?|finish(?:es)?) (?:with|up)"
    r"|the (?:very )?(?:last|final|closing) (?!time\b|of\b|second\b|minute\b))",
    re.I,
)

_WHEN = re.compile(
    r"^\W*(?:(?:tell|say|show|give)\b.{0,12}? )?(?:when\b"
    r"|(?:at|in|on|by|after|before|until|since|from) (?:which|what|how many) "
    r"(?:seconds?|minutes?|hour|moment|point|time(?:stamp)?|frame)\b"
    r"|how (?:long|many (?:seconds|minutes))\b)",
    re.I,
)
_EVENT = re.compile(r"(?<=\w),? (?:while|when|whenever|as|once|during) (?P<event>\w+ .+?)[\s?.!]*$", re.I)


class Moment(NamedTuple):
    """A part of a clip's time."""

    start: float  # in seconds or as a share; below 0 both count from the clip's end
    end: float  # not before the start; infinite for all that follows
    share: bool = False  # both are shares of the clip

    def worth(self, times: Sequence[float] | None, steps: int) -> Tensor | None:
        """Return the share of its relevance that each step keeps, [steps]: 1 within the moment, less
        elsewhere.

        None if the moment isn't in the clip, or is told in seconds and `times` of the steps are not known.
        """
        if self.share:
            first, last = math.floor(self.start * steps), math.ceil(self.end * steps) - 1
            return _within(min(first, steps - 1), max(min(last, steps - 1), first), steps, OUTSIDE_VAGUE)
        if times is None:
            return None
        length = times[-1] + (times[-1] - times[0]) / max(
            steps - 1, 1
        )  # the last step lasts as the others do
        start, end = (length + time if self.start < 0 else time for time in self[:2])
        if start > length:
            return None
        # A step holds a point in time if it begins before it, and the next one doesn't.
        first = max(sum(time <= start for time in times) - 1, 0)
        last = max(sum(time <= end for time in times) - 1, first)
        return _within(first, last, steps, OUTSIDE_EXACT)


def moment_of(question: str) -> Moment | None:
    """Return the moment that a question names, None if it names none; of several the first that is a span."""
    if match := _BETWEEN.search(question):
        start, end = _seconds(match, "a"), _seconds(match, "b")
        if start is not None and end is not None and start <= end:
            return Moment(start, end)
    if match := _SPAN.search(question):
        count = _seconds(match, "a")
        if count is not None:
            early = match["word"].lower() in ("first", "opening")
            return Moment(0.0, count) if early else Moment(-count, 0.0)
    for match in _AT.finditer(question):
        if (time := _seconds(match, "a")) is None:
            continue
        word = match["word"].lower()
        if word in ("after", "from", "since"):
            return Moment(time, math.inf)
        return Moment(0.0, time) if word in ("before", "until", "till") else Moment(time, time)
    start, end = bool(_START.search(question)), bool(_END.search(question))
    if start == end:  # neither, or both: "from the start to the end"
        return None
    return Moment(0.0, EDGE_SHARE, share=True) if start else Moment(1 - EDGE_SHARE, 1.0, share=True)


def asks_when(question: str) -> bool:
    """Return whether a question is about a time: "when ...", "at which second ...", "after how many seconds
    ...".
    """
    return bool(_WHEN.search(question))


def event_of(question: str) -> str | None:
    """Return the event at which a question asks for something else: what follows "while", "when" or "as" in
    it.
    """
    match = None if asks_when(question) else _EVENT.search(question)
    return match["event"] if match else None


def moment_shown(chances: Tensor) -> Tensor:
    """Return the share of its relevance that each step keeps, [T]: 1 at the step that shows an event best.

    `chances` [T, H, W] are those that a cell shows the event, 0 where nothing is new.
    """
    flat = chances.flatten(1)
    best = flat.topk(min(EVENT_CELLS, flat.shape[1])).values.mean(1)
    return _within(int(best.argmax()), int(best.argmax()), len(flat), OUTSIDE_VAGUE)


def _seconds(match: re.Match[str], tag: str) -> float | None:
    """Return the seconds of a point in time; None of a number without a unit, which may be a number of
    anything.
    """
    groups = match.groupdict()
    if groups.get(f"minutes{tag}"):
        hours = int(groups.get(f"hours{tag}") or 0)
        return 3600 * hours + 60 * int(groups[f"minutes{tag}"]) + float(groups[f"seconds{tag}"])
    unit = groups.get(f"unit{tag}") or groups.get(f"named{tag}")
    if unit is None and tag == "a" and "unitb" in groups:  # "between 3 and 5 seconds"
        unit = groups.get("unitb")
    if unit is None:
        return None
    return float(groups[f"number{tag}"]) * (60 if unit.lower().startswith("m") else 1)


def _within(first: int, last: int, steps: int, elsewhere: float) -> Tensor:
    worth = torch.full((steps,), elsewhere)
    worth[first : last + 1] = 1.0
    return worth
