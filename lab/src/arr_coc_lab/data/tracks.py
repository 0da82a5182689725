"""Evidence in a clip: where and when the picture shows what answers a question.

    Evidence(first=4, last=11, boxes=((10, 20, 90, 60),))                a box that stays for eight frames
    Evidence(first=4, last=5, boxes=((10, 20, 90, 60), (14, 20, 94, 60)))   one that moves

A question has a tuple of items, and an answer takes all of them: "which came first" has an item for either
thing, "how many" one for each. An item is a *track*: a run of frames with a box in each. By default any one
of its frames is enough, since they all show the same; `every=True` says that all of them are needed, as for
a path that is to be followed. So of one question

    recall = mean over its items of  max over the item's frames  of the covered share of the frame's evidence
                                     (mean over the frames where `every`)

and a way of choosing cells that keeps one readable moment of each item has recall 1, however short the
moment is against the track. `data.clip_evidence` turns items into cells and measures this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from arr_coc.data.record import Box


@dataclass(frozen=True)
class Evidence:
    """One item of evidence: a box over a run of frames.

    Attributes:
        first: number of the first frame, from 0.
        last: number of the last frame, inclusive.
        boxes: (x0, y0, x1, y1) in px: one box for all frames, or one per frame from `first` to `last`.
        every: whether all frames are needed; else any one is enough.

    Raises:
        ValueError: a run that ends before it begins, or another number of boxes.
    """

    first: int
    last: int
    boxes: tuple[Box, ...]
    every: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            raise ValueError(f"evidence of frames {self.first} to {self.last} is empty: give first <= last")
        if len(self.boxes) not in (1, len(self)):
            raise ValueError(
                f"evidence of {len(self)} frames has {len(self.boxes)} boxes: give one, or one per frame"
            )

    def __len__(self) -> int:
        """The number of frames."""
        return self.last - self.first + 1

    @property
    def frames(self) -> range:
        """The numbers of its frames."""
        return range(self.first, self.last + 1)

    def box(self, frame: int) -> Box:
        """The box in a frame of the run.

        Raises:
            ValueError: the frame lies outside of it.
        """
        if frame not in self.frames:
            raise ValueError(f"frame {frame} lies outside of the evidence ({self.first} to {self.last})")
        return self.boxes[0] if len(self.boxes) == 1 else self.boxes[frame - self.first]

    def part(self, first: int, last: int) -> Evidence | None:
        """The item within frames `first` to `last` inclusive; None where they share no frame."""
        low, high = max(first, self.first), min(last, self.last)
        if low > high:
            return None
        boxes = self.boxes if len(self.boxes) == 1 else self.boxes[low - self.first : high - self.first + 1]
        return replace(self, first=low, last=high, boxes=boxes)

    def sampled(self, numbers: Sequence[int]) -> Evidence | None:
        """The item in a clip of which only the frames `numbers` are read, counted anew from 0.

        Args:
            numbers: ascending numbers of the sampled frames.

        Returns:
            None where no frame of it was sampled: then nobody can answer from the pictures.
        """
        places = [place for place, number in enumerate(numbers) if number in self.frames]
        if not places:
            return None
        boxes = self.boxes if len(self.boxes) == 1 else tuple(self.box(numbers[place]) for place in places)
        return replace(self, first=places[0], last=places[-1], boxes=boxes)
