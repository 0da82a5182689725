"""Evidence in a clip: where and when the frames show what answers a question.

    Evidence(first=4, last=11, boxes=((10, 20, 90, 60),))                a box that stays for eight frames
    Evidence(first=4, last=5, boxes=((10, 20, 90, 60), (14, 20, 94, 60)))   one that moves

A question has a tuple of items, all of which it needs: "which came first" has one for either thing. Any one
frame of an item is enough, unless it needs `every`, such as a path to follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arr_coc.data.record import Box


@dataclass(frozen=True)
class Evidence:
    """One item of evidence: a box over a run of frames; ValueError if they do not fit."""

    first: int  # number of the first frame, from 0
    last: int  # of the last one, inclusive
    boxes: tuple[Box, ...]  # (x0, y0, x1, y1) in px: one for all frames, or one for each
    every: bool = False  # all frames are needed; else any one is enough

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise ValueError(f"evidence of frames {self.first} to {self.last} is empty: give first <= last")
        if len(self.boxes) not in (1, len(self)):
            raise ValueError(
                f"evidence of {len(self)} frames has {len(self.boxes)} boxes: give one, or one per frame"
            )

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def frames(self) -> range:
        return range(self.first, self.last + 1)

    def box(self, frame: int) -> Box:
        """Return the box in a frame of the run; ValueError for another frame."""
        if frame not in self.frames:
            raise ValueError(f"frame {frame} lies outside of the evidence ({self.first} to {self.last})")
        return self.boxes[0] if len(self.boxes) == 1 else self.boxes[frame - self.first]

    def part(self, first: int, last: int) -> Evidence | None:
        """Return the item within frames `first` to `last` inclusive; None if they share no frame."""
        low, high = max(first, self.first), min(last, self.last)
        if low > high:
            return None
        boxes = self.boxes if len(self.boxes) == 1 else self.boxes[low - self.first : high - self.first + 1]
        return replace(self, first=low, last=high, boxes=boxes)

    def sampled(self, numbers: Sequence[int]) -> Evidence | None:
        """Return the item in the ascending sampled frames `numbers`, counted from 0; None without any."""
        places = [place for place, number in enumerate(numbers) if number in self.frames]
        if not places:
            return None
        boxes = self.boxes if len(self.boxes) == 1 else tuple(self.box(numbers[place]) for place in places)
        return replace(self, first=places[0], last=places[-1], boxes=boxes)
