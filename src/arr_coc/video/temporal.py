"""Time: what is new in each frame of a clip, and relevance that carries over from frame to frame.

    changes = Changes.of(frames, (H, W))     per frame: is it a cut, how far it moved, which cells are new
    relevance_over_time(logits, changes)     [T, H, W] logits -> [T, H, W] logits, to be ranked together

Relevance is smoothed: `OLD` of the frame before, moved along with the picture, and the rest of the frame
itself; from the start where a cell's content is new. A cell whose content was there before tells nothing
twice, so repeated ones are ranked far below new ones. A cut makes everything new.
What lies beside a new cell is looked at, too, for a thing is more than the cells in which it differs.
A question about a time ("when does it go?") is answered by both sides of a change: there the last look at
what changes counts as much as the first look at what it becomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.texture.clip import CUT, OLD
from arr_coc.choose.texture.motion import covered, layer_shift, moved
from arr_coc.video.moments import asks_when, moment_of, moment_shown

FINE, BLOCK = 16, 2
"""Points along each side of a cell at which movement is looked for, and along each side of the blocks of
points in which content is compared: what moved by a part of a point is the same on their mean."""
NEW = 0.06
"""Mean absolute difference, in the block of a cell that differs most, from which its content is new."""
REPEATED = 0.001
"""Share of its relevance that a cell has left where its content was there before."""
NEAR = 0.3
"""What a cell beside a new one is worth: a thing is more than those of its cells in which it differs."""
GAINS, LIT = (0.5, 2.0), 4
"""Least and largest factor by which all light may change, and rounds in which it is fitted."""


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
        still: bool [T, H, W], cells that stood still though the picture moved; None: none did.
        worth: float [T], what is left of the relevance of each frame where a question names a moment; None
            where it names none.
        ends: whether the last look at what changes counts as much as the first at what it becomes.
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
        cuts, shifts, new, differences, still = zip(*steps, strict=True)
        return cls(
            torch.tensor(cuts),
            torch.tensor(shifts),
            torch.stack(new),
            torch.tensor(differences),
            torch.stack(still),
        )

    def at(self, question: str, times: Sequence[float] | None = None, event: Tensor | None = None) -> Changes:
        """The same changes for a question, which may name a moment: where that begins everything is new.

        Args:
            question: any text.
            times: seconds at which each frame begins; None: not known.
            event: float [T, H, W], logits of what the question says happens at its moment
                (`moments.event_of`); None: it says nothing of the kind, or nobody looked for it.
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
        """What the relevance of each cell is worth by what is new, float [T, H, W] in [0, 1]."""
        fresh = self.changed
        if self.worth is not None:
            fresh[int((self.worth == 1).nonzero()[0])] = 1.0
        return fresh.clamp_min(REPEATED)

    @property
    def changed(self) -> Tensor:
        """1 for cells that are new, `NEAR` for those beside one, else 0: float [T, H, W]."""
        new = self.new.float()
        return torch.maximum(new, NEAR * F.max_pool2d(new[:, None], 3, 1, padding=1)[:, 0])

    def carried(self, maps: Tensor, t: int) -> Tensor:
        """A map [H, W] of the frame before frame `t`, where its content is now."""
        along = _along(maps, self.shifts[t])
        return along if self.still is None else torch.where(self.still[t].to(maps.device), maps, along)

    def back(self, maps: Tensor, t: int) -> Tensor:
        """A map [H, W] of frame `t`, where its content was in the frame before."""
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
            every = torch.ones(self.grid, dtype=torch.bool)
            return Change(True, (0.0, 0.0), every, difference, ~every)
        down, right = layer_shift(last[None], small[None])[0].tolist()
        everywhere = torch.ones_like(small[0], dtype=torch.bool)
        apart = _apart(small, reference, everywhere)
        still = torch.zeros_like(apart, dtype=torch.bool)
        if down or right:
            along, inside = _moved(reference, (down, right))
            moving = _apart(small, along, inside)
            still, apart = apart < moving, torch.minimum(apart, moving)
            reference = torch.where(_points(still), reference, along)
        new = apart > NEW
        self._reference = torch.where(_points(new), small, reference)
        return Change(False, (down / FINE, right / FINE), new.cpu(), difference, still.cpu())


def relevance_over_time(logits: Tensor, changes: Changes) -> Tensor:
    """Logits of relevance that can be ranked over a whole clip, from those of its frames by themselves.

    Args:
        logits: float [T, H, W].
        changes: of the clip.

    Returns:
        float [T, H, W]: smoothed over time, and lowered where a cell's content was there before, and outside
        of the moment that the question names.
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
        smooth[t] = torch.where(ending > REPEATED, both, smooth[t])
        worth[t] = torch.maximum(worth[t], ending)
    return smooth, worth


def _moved(picture: Tensor, shift: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """A picture [3, h, w] moved by points (down, right), and where it still covers the frame, bool [h, w]."""
    size, by = (picture.shape[-2], picture.shape[-1]), torch.tensor([shift], device=picture.device)
    inside = covered(size, by)[0]
    down, right = shift
    if down == round(down) and right == round(right):
        return picture.roll((round(down), round(right)), (-2, -1)), inside
    return moved(picture[None], by / by.new_tensor(size), "border")[0], inside


def _apart(frame: Tensor, reference: Tensor, inside: Tensor) -> Tensor:
    """How far the content of each cell is from the reference's, [H, W]; infinite where that is not at hand.

    The mean absolute difference in the block of points that differs most. A change of all light, by a factor
    and by an amount, is no difference.
    """
    fine, before = F.avg_pool2d(frame, BLOCK), F.avg_pool2d(reference, BLOCK)
    outside = F.max_pool2d((~inside).float()[None], BLOCK)[0] > 0
    if not bool(outside.all()):
        factor, amount = _light(before[:, ~outside], fine[:, ~outside])
        before = factor * before + amount[:, None, None]
    apart = (fine - before).abs().mean(0).masked_fill(outside, torch.inf)
    return F.max_pool2d(apart[None], FINE // BLOCK)[0]


def _light(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """By what factor, and by what amount in each channel [c], the light of points [c, n] has changed.

    Least squares over the points that agree best, chosen anew in each round: what is new must not count.
    """
    factor, amount = before.new_ones(()), (after - before).median(1).values
    for _ in range(LIT):
        rest = (after - factor * before - amount[:, None]).abs().mean(0)
        near = (rest <= 2.5 * rest.median() + 0.01).float()
        middles = [(side * near).sum(1) / near.sum() for side in (before, after)]
        a, b = (
            (side - middle[:, None]) * near for side, middle in zip((before, after), middles, strict=True)
        )
        # On a blank picture there is no telling a factor from an amount.
        even = a.square().sum() <= 1e-4 * near.sum()
        factor = torch.where(even, 1.0, ((a * b).sum() / a.square().sum().clamp_min(1e-12)).clamp(*GAINS))
        amount = middles[1] - factor * middles[0]
    return factor, amount


def _points(cells: Tensor) -> Tensor:
    """A mask of cells [H, W] as one of points."""
    return cells.repeat_interleave(FINE, 0).repeat_interleave(FINE, 1)


def _along(relevance: Tensor, shift: Tensor) -> Tensor:
    """A map [H, W] moved by (down, right) cells; what comes in from outside repeats the rim."""
    if not bool(shift.any()):
        return relevance
    share = shift / shift.new_tensor(relevance.shape)
    return moved(relevance[None, None], share[None].to(relevance.device), "border")[0, 0]
