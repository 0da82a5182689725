"""Moments: the part of a clip's time that a question names, and what it is worth to look elsewhere.

    moment_of("What does the caption say at 5.5 seconds?")    Moment(5.5, 5.5)
    moment_of("Which colour is it in the end?")               Moment(0.9, 1.0, share=True)
    moment_of("What is the total?")                           None

    asks_when("When does the light turn red?")                True
    event_of("What does it say while the light is red?")      "the light is red"

Only what is said outright is read: seconds and minutes, times such as 1:05, and the clip's start and end.
When an event takes place that a question names is left to what the frames show (`moment_shown`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

ELSEWHERE, AROUND = 0.05, 0.1
"""What is left of the relevance of a step outside of a moment that is told in seconds, and outside of one at
the clip's start or end or of an event, which a question may mean otherwise ("the last line")."""
EVENT = 4
"""Cells by which the step is found in which an event shows: the mean of so many, those that fit best."""
EDGE = 0.1
"""Share of a clip that is its start or its end."""

_CLOCK = r"(?:(?P<hours{0}>\d+):)?(?P<minutes{0}>\d{{1,3}}):(?P<seconds{0}>\d\d(?:\.\d+)?)"
_COUNT = r"(?P<number{0}>\d+(?:\.\d+)?)(?:[- ]?(?P<unit{0}>s|secs?|seconds?|min|mins|minutes?))?"
_POINT = rf"(?:(?:the )?(?P<named{{0}}>seconds?|minutes?) )?(?:{_CLOCK}|{_COUNT})"


def _point(tag: str) -> str:
    """The pattern of a point in time, its groups named by a tag."""
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
    """A part of a clip's time.

    Attributes:
        start: in seconds, or as a share of the clip.
        end: likewise, not before the start; infinite for all that follows. Where the start is below 0 both
            count from the clip's end.
        share: both are shares of the clip.
    """

    start: float
    end: float
    share: bool = False

    def worth(self, times: Sequence[float] | None, steps: int) -> Tensor | None:
        """What is left of the relevance of each step: 1 within, less elsewhere.

        Args:
            times: seconds at which each step begins, ascending; None: not known, and a moment that is told in
                seconds says nothing.
            steps: of the clip, at least 1.

        Returns:
            Float [steps], at least one of them 1; None where the moment says nothing of this clip.
        """
        if self.share:
            first, last = math.floor(self.start * steps), math.ceil(self.end * steps) - 1
            return _within(min(first, steps - 1), max(min(last, steps - 1), first), steps, AROUND)
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
        return _within(first, last, steps, ELSEWHERE)


def moment_of(question: str) -> Moment | None:
    """The moment that a question names, None if it names none; of several the first that is a span."""
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
    return Moment(0.0, EDGE, share=True) if start else Moment(1 - EDGE, 1.0, share=True)


def asks_when(question: str) -> bool:
    """Whether a question is about a time: "when ...", "at which second ...", "after how many seconds ..."."""
    return bool(_WHEN.search(question))


def event_of(question: str) -> str | None:
    """The event at which a question asks for something else: what follows "while", "when" or "as" in it.

    None where it names none, or is about the event itself ("When does the light turn red?").
    """
    match = None if asks_when(question) else _EVENT.search(question)
    return match["event"] if match else None


def moment_shown(chances: Tensor) -> Tensor:
    """What is left of the relevance of each step, where an event shows in some.

    Args:
        chances: float [T, H, W] in [0, 1], that a cell shows the event; 0 where nothing is new.

    Returns:
        Float [T]: 1 at the step that shows it best, less elsewhere.
    """
    flat = chances.flatten(1)
    best = flat.topk(min(EVENT, flat.shape[1])).values.mean(1)
    return _within(int(best.argmax()), int(best.argmax()), len(flat), AROUND)


def _seconds(match: re.Match[str], tag: str) -> float | None:
    """The seconds of a point in time; None of a number without a unit, which may be a number of anything."""
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
    """Float [steps]: 1 from the first to the last step, `elsewhere` at the others."""
    worth = torch.full((steps,), elsewhere)
    worth[first : last + 1] = 1.0
    return worth
