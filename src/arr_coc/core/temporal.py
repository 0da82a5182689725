"""Time: what is new in each frame of a clip, and relevance that carries over from frame to frame.

    changes = Changes.of(frames, (H, W))     per frame: is it a cut, how far it moved, which cells are new
    relevance_over_time(logits, changes)     [T, H, W] logits -> [T, H, W] logits, to be ranked together

Relevance is smoothed: `OLD` of the frame before, moved along with the picture, and the rest of the frame
itself; from the start where a cell's content is new. A cell whose content was there before tells nothing
twice, so repeated ones are ranked far below new ones. A cut makes everything new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.core.moments import moment_of
from arr_coc.core.motion import covered, moved, point_shift
from arr_coc.core.texture.clip import CUT, OLD

FINE, BLOCK = 16, 2
"""Points along each side of a cell at which movement is looked for, and along each side of the blocks of
points in which content is compared: what moved by a part of a point is the same on their mean."""
NEW = 0.06
"""Mean absolute difference, in the block of a cell that differs most, from which its content is new."""
REPEATED = 0.001
"""Share of its relevance that a cell has left where its content was there before."""


@dataclass(frozen=True)
class Changes:
    """What changes from frame to frame of a clip.

    Attributes:
        cuts: bool [T], frames that begin a scene; the first one does.
        shifts: float [T, 2], by how many cells (down, right) the picture moved since the frame before; 0
            where it didn't, or a scene begins.
        new: bool [T, H, W], cells whose content was not there before, at this place or at where it moved
            from.
        differences: float [T], the mean absolute difference to the frame before, in [0, 1].
        worth: float [T], what is left of the relevance of each frame where a question names a moment; None
            where it names none.
    """

    cuts: Tensor
    shifts: Tensor
    new: Tensor
    differences: Tensor
    worth: Tensor | None = None

    @classmethod
    def of(cls, frames: Iterable[Tensor], grid: tuple[int, int]) -> Changes:
        """Compare the frames of a clip, one after another; none but the last is held.

        Args:
            frames: float [3, h, w] in [0, 1] each, at least one.
            grid: (H, W) cells.

        Raises:
            ValueError: there is no frame.
        """
        tracker = Tracker(grid)
        return cls.joined([tracker(frame) for frame in frames])

    @classmethod
    def joined(cls, steps: Sequence[Change]) -> Changes:
        """The changes of a clip, from those of its frames in order.

        Raises:
            ValueError: there is none.
        """
        if not steps:
            raise ValueError("a clip without frames has no changes: give at least one frame")
        cuts, shifts, new, differences = zip(*steps, strict=True)
        return cls(torch.tensor(cuts), torch.tensor(shifts), torch.stack(new), torch.tensor(differences))

    def at(self, question: str, times: Sequence[float] | None = None) -> Changes:
        """The same changes for a question, which may name a moment: where that begins everything is new.

        Args:
            question: any text.
            times: seconds at which each frame begins; None: not known.
        """
        moment = moment_of(question)
        worth = None if moment is None else moment.worth(times, len(self.cuts))
        if worth is None:
            return self
        new = self.new.clone()
        new[int((worth == 1).nonzero()[0])] = True  # the first of the moment's frames
        return replace(self, new=new, worth=worth)

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

    @property
    def grid(self) -> tuple[int, int]:
        """(H, W) cells."""
        height, width = self.new.shape
        return height, width

    @property
    def repeated(self) -> bool:
        """Whether the frame shows what the one before showed, at the same place."""
        return not any(self.shift) and not bool(self.new.any())


class Tracker:
    """Compares each frame of a clip with what was there before, in memory that doesn't grow with the clip.

    Args:
        grid: (H, W) cells.
    """

    def __init__(self, grid: tuple[int, int]) -> None:
        self.grid = grid
        self._last: Tensor | None = None
        self._reference: Tensor | None = None  # what was last new at each point, moved along

    def __call__(self, frame: Tensor) -> Change:
        """What is new in the next frame, float [3, h, w] in [0, 1]."""
        small = F.adaptive_avg_pool2d(frame.float(), (self.grid[0] * FINE, self.grid[1] * FINE))
        last, reference = self._last, self._reference
        difference = 0.0 if last is None else float((small - last).abs().mean())
        self._last = small
        if last is None or reference is None or difference > CUT:
            self._reference = small
            return Change(True, (0.0, 0.0), torch.ones(self.grid, dtype=torch.bool), difference)
        down, right = point_shift(last[None], small[None])[0].tolist()
        shift = down, right
        reference, inside = _moved(reference, shift)
        new = _is_new(small, reference, inside)
        points = new.repeat_interleave(FINE, 0).repeat_interleave(FINE, 1)
        self._reference = torch.where(points, small, reference)
        return Change(False, (shift[0] / FINE, shift[1] / FINE), new.cpu(), difference)


def relevance_over_time(logits: Tensor, changes: Changes) -> Tensor:
    """Logits of relevance that can be ranked over a whole clip, from those of its frames by themselves.

    Args:
        logits: float [T, H, W].
        changes: of the clip.

    Returns:
        float [T, H, W]: smoothed over time, and lowered where a cell's content was there before, and outside
        of the moment that the question names.
    """
    chance = logits.float().sigmoid()
    smooth = [chance[0]]
    for t in range(1, len(chance)):
        before = _along(smooth[-1], changes.shifts[t])
        mixed = OLD * before + (1 - OLD) * chance[t]
        smooth.append(torch.where(changes.new[t].to(chance.device), chance[t], mixed))
    worth = torch.where(changes.new.to(chance.device), 1.0, REPEATED)
    if changes.worth is not None:
        worth = worth * changes.worth.to(worth)[:, None, None]
    # In logarithms, so that cells of which nothing is expected keep an order, too.
    total = (torch.stack(smooth) * worth).clamp(1e-12, 1 - 1e-6)
    return total.log() - (-total).log1p()


def _moved(picture: Tensor, shift: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """A picture [3, h, w] moved by points (down, right), and where it still covers the frame, bool [h, w]."""
    size, by = (picture.shape[-2], picture.shape[-1]), torch.tensor([shift], device=picture.device)
    inside = covered(size, by)[0]
    down, right = shift
    if down == round(down) and right == round(right):
        return picture.roll((round(down), round(right)), (-2, -1)), inside
    return moved(picture[None], by / by.new_tensor(size), "border")[0], inside


def _is_new(frame: Tensor, reference: Tensor, inside: Tensor) -> Tensor:
    """The cells whose content differs from the reference's, bool [H, W]; a change of all light is none."""
    difference = F.avg_pool2d(frame - reference, BLOCK)
    outside = F.max_pool2d((~inside).float()[None], BLOCK)[0] > 0
    if not bool(outside.all()):
        difference = difference - difference[:, ~outside].median(1).values[:, None, None]
    blocks = FINE // BLOCK
    worst = F.max_pool2d(difference.abs().mean(0)[None], blocks)[0]
    return (worst > NEW) | (F.max_pool2d(outside.float()[None], blocks)[0] > 0)


def _along(relevance: Tensor, shift: Tensor) -> Tensor:
    """A map [H, W] moved by (down, right) cells; what comes in from outside repeats the rim."""
    if not bool(shift.any()):
        return relevance
    share = shift / shift.new_tensor(relevance.shape)
    return moved(relevance[None, None], share[None].to(relevance.device), "border")[0, 0]
