"""What changed and what moved in the latest frames of a clip, on a grid of cells.

    clip = Clip.of(previous_frames [B, T, 3, h, w], image [B, 3, h, w], grid)

Frames are compared in brightness, reduced to at most SMALL px each way. One shift of the whole picture is
estimated between each frame and the next, by phase correlation; what moves within a picture is change.
A cut (mean absolute difference of two frames above CUT) is never bridged by a shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from kornia.color import rgb_to_grayscale
from torch import Tensor

from arr_coc.choose.texture.filters import cell_mean
from arr_coc.choose.texture.motion import moved, phase_shift

SMALL = 128
"""Most px each way of the pictures that frames are compared in."""
FRAMES = 8
"""The latest frames before an image that are compared; older ones are not read."""
CUT = 0.3
"""Mean absolute difference of brightness between two frames above which a scene was cut."""
CHANGED = 0.02
"""Mean absolute difference of brightness above which a cell has changed."""
OLD = 0.7
"""Share of what was in a running mean over frames or questions; the rest is the new map's."""


@dataclass(frozen=True, eq=False)
class Clip:
    """The latest frames of a clip in small, and what follows from them; T counts the frames before the image.

    Attributes:
        small: [B, T + 1, h', w'] in [0, 1], brightness of the frames, oldest first, the image last.
        grid: (H, W).
    """

    small: Tensor
    grid: tuple[int, int]

    @classmethod
    def of(cls, previous_frames: Tensor, image: Tensor, grid: tuple[int, int]) -> Clip:
        """The clip of an image [B, 3, h, w] and the frames before it [B, T, 3, h, w]."""
        size = (min(SMALL, image.shape[-2]), min(SMALL, image.shape[-1]))
        frames = [*previous_frames[:, -FRAMES:].unbind(1), image]
        return cls(torch.cat([rgb_to_grayscale(cell_mean(frame, size)) for frame in frames], 1), grid)

    @cached_property
    def shifts(self) -> Tensor:
        """The shift from each frame to the next, [B, T, 2] of (y, x); 0 across a cut."""
        before, after = (x.flatten(0, 1)[:, None] for x in (self.small[:, :-1], self.small[:, 1:]))
        shifts = phase_shift(before, after).view(len(self.small), -1, 2)
        return shifts * ~self.cuts[..., None]

    @cached_property
    def cuts(self) -> Tensor:
        """Whether the scene was cut between each frame and the next, bool [B, T]."""
        return self.small.diff(dim=1).abs().mean((2, 3)) > CUT

    @cached_property
    def changes(self) -> Tensor:
        """Change of each cell from each frame to the next beyond its shift, [B, T, H, W] in [0, 1].

        The mean absolute difference of brightness. Where a shift uncovers what was not in the frame before,
        the frames are compared where they are.
        """
        before, after = (x.flatten(0, 1)[:, None] for x in (self.small[:, :-1], self.small[:, 1:]))
        shift = self.shifts.flatten(0, 1)
        at_hand = moved(torch.ones_like(before), shift)
        aligned = torch.where(at_hand > 0.999, moved(before, shift), before)
        return cell_mean((after - aligned).abs(), self.grid).view(*self.small.shape[:1], -1, *self.grid)

    def followed(self, maps: Tensor) -> Tensor:
        """A map [B, H, W] of the frame before, where its content is now; 0 after a cut and in what is new."""
        here = moved(maps[:, None], self.shifts[:, -1])[:, 0]
        return here * ~self.cuts[:, -1, None, None]

    def smoothed(self, history: Tensor) -> Tensor:
        """The running mean of relevance over frames, 0.7 old and 0.3 new, where its content is now.

        It starts again at a cut, from the first map after it: 0 where the cut is the latest change.

        Args:
            history: [B, T', H, W], relevance of the latest frames before the image, oldest first.

        Returns:
            [B, H, W] in [0, 1].
        """
        frames = min(history.shape[1], self.shifts.shape[1])
        maps, shifts, cuts = history[:, -frames:], self.shifts[:, -frames:], self.cuts[:, -frames:]
        way = shifts.flip(1).cumsum(1).flip(1)  # from each frame to the image: each map is resampled once
        here = moved(maps.flatten(0, 1)[:, None], way.flatten(0, 1)).view(maps.shape)
        mean = here[:, 0]
        for i in range(1, frames):
            start = cuts[:, i - 1, None, None]
            mean = torch.where(start, here[:, i], OLD * mean + (1 - OLD) * here[:, i])
        return mean * ~cuts[:, -1, None, None]

    @cached_property
    def ages(self) -> Tensor:
        """Frames for which each cell's content has not changed, [B, H, W], 0 to T; 0 after a cut."""
        age = torch.zeros_like(self.changes[:, 0])
        for i in range(self.changes.shape[1]):
            still = (self.changes[:, i] <= CHANGED) & ~self.cuts[:, i, None, None]
            age = (moved(age[:, None], self.shifts[:, i])[:, 0] + 1) * still
        return age
