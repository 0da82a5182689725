"""The motion of a picture between two frames, and what changed in the latest frames of a clip.

point_shift(before [B, c, h, w], after) -> [B, 2]          points (down, right) that the picture moved
layer_shift(before, after) -> [B, 2]                       the same for a layer that moves behind another
Motion.of(previous_frames [B, T, 3, h, w], image, grid)    shifts, cuts and changes of each cell
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from kornia.color import rgb_to_grayscale
from torch import Tensor

from arr_coc.choose.filters import Grid2D, cell_mean

PEAKS_TRIED = 3  # highest points of a correlation that are tried as shifts
MAX_LEFT_OVER = 0.7  # share of the difference between frames that a believed shift may leave
SAME_FRAME = 1e-4  # mean absolute difference below which two frames are the same
PART_SIDE = 8  # side in points of the parts that `layer_shift` compares one by one
MIN_PARTS = 0.1  # share of all parts that must have moved: below it a thing moves, not a layer
PART_CHANGED = 0.02  # mean absolute difference above which a part has changed
MIN_FRACTION = 0.1  # of a point; shifts by less would only blur the picture


def point_shift(before: Tensor, after: Tensor) -> Tensor:
    """Return the points [B, 2] that a picture moved down and right by phase correlation (Kuglin & Hines,
    1975).

    Of frames [B, c, h, w] in [0, 1]; 0 if no shift explains the difference.
    """
    same = (after - before).abs().mean((1, 2, 3))  # (B,)
    # Of the likeliest shifts, the one under which the frames agree best in what both show.
    shifts = _candidates(before.mean(1), after.mean(1))  # (B, n, 2)
    left_over = torch.stack([_difference(before, after, shift) for shift in shifts.unbind(1)], 1)  # (B, n)
    least, place = left_over.min(1)
    best = shifts[torch.arange(len(place), device=place.device), place]
    return torch.where(((least < MAX_LEFT_OVER * same) & (same >= SAME_FRAME))[:, None], best, 0.0)


def layer_shift(before: Tensor, after: Tensor) -> Tensor:
    """`point_shift` of a layer that moves while the rest stands still, as a page under fixed captions."""
    same = (after - before).abs().mean((1, 2, 3))  # (B,)
    side = min(PART_SIDE, *before.shape[-2:])
    still = F.avg_pool2d((after - before).abs().mean(1)[:, None], side)  # (B, 1, h', w')
    shifts = _candidates(before.mean(1), after.mean(1))  # (B, n, 2)
    size = (before.shape[-2], before.shape[-1])
    left_over, areas = [], []
    for shift in shifts.unbind(1):
        there = moved(before, shift / torch.tensor(size, device=shift.device), "border")
        difference = (after - there).abs().mean(1).masked_fill(~covered(size, shift), 1.0)
        along = F.avg_pool2d(difference[:, None], side)
        left_over.append(torch.minimum(along, still).mean((1, 2, 3)))
        areas.append(((along < still / 2) & (still > PART_CHANGED)).float().mean((1, 2, 3)))
    least, place = torch.stack(left_over, 1).min(1)
    rows = torch.arange(len(place), device=place.device)
    best, area = shifts[rows, place], torch.stack(areas, 1)[rows, place]
    believed = (least < MAX_LEFT_OVER * same) & (area >= MIN_PARTS) & (same >= SAME_FRAME)
    return torch.where(believed[:, None], best, 0.0)


def phase_shift(before: Tensor, after: Tensor) -> Tensor:
    """`point_shift` in shares of the height and of the width, [B, 2] in [-0.5, 0.5]."""
    return point_shift(before, after) / torch.tensor(before.shape[-2:], device=before.device)


def moved(maps: Tensor, shift: Tensor, rim: str = "zeros") -> Tensor:
    """Maps [B, c, H, W] moved down and right by shares [B, 2] of their sides (y, x), linear between cells."""
    # `affine_grid` asks for each place where it comes from, so the shift is undone.
    eye = torch.eye(2, device=maps.device, dtype=maps.dtype).expand(len(maps), 2, 2)
    back = -2 * shift.flip(1).to(maps.dtype)[..., None]  # (B, 2, 1) of (x, y), in which a side is 2 long
    places = F.affine_grid(torch.cat((eye, back), 2), list(maps.shape), align_corners=False)
    return F.grid_sample(maps, places, mode="bilinear", padding_mode=rim, align_corners=False)


def covered(size: tuple[int, int], shift: Tensor) -> Tensor:
    """Return the points of a frame (h, w) that a picture moved by `shift` [B, 2] points covers, bool [B, h,
    w].
    """
    sides = [
        (place >= by) & (place <= side - 1 + by)
        for side, by in zip(size, shift.T[..., None], strict=True)
        for place in [torch.arange(side, device=shift.device)]
    ]
    return sides[0][:, :, None] & sides[1][:, None]


def _candidates(before: Tensor, after: Tensor) -> Tensor:
    """Return the likeliest shifts between pictures [B, h, w], the likeliest first: [B, n, 2] points."""
    h, w = before.shape[-2:]
    # Without a window the rims of the picture, which do not match, would be a peak of their own.
    window = torch.outer(_hann(h, before.device), _hann(w, before.device))
    spectra = [torch.fft.rfft2((x - x.mean((-2, -1), keepdim=True)) * window) for x in (before, after)]
    cross = spectra[1] * spectra[0].conj()
    # Dividing by (length + 1e-3) weighs down frequencies that hold only rounding noise.
    surface = torch.fft.irfft2(cross / (cross.abs() + 1e-3), s=(h, w))  # (B, h, w)
    peaks = surface.flatten(1).argsort(dim=1, descending=True, stable=True)[:, :PEAKS_TRIED]  # (B, n)
    at = peaks // w, peaks % w
    rows = torch.arange(len(surface), device=surface.device)[:, None]
    whole, refined = [], []
    for axis, side in enumerate((h, w)):
        low, middle, high = (
            surface[rows, (at[0] + (step if axis == 0 else 0)) % h, (at[1] + (step if axis else 0)) % w]
            for step in (-1, 0, 1)
        )
        # The vertex of the parabola through the peak and its two neighbours.
        bend = 2 * middle - low - high
        part = torch.where(bend > 1e-6, 0.5 * (high - low) / bend.clamp_min(1e-6), 0.0).clamp(-0.5, 0.5)
        # The second half of the surface stands for shifts up and to the left.
        place = torch.where(at[axis] > side // 2, at[axis] - side, at[axis]).to(part)
        whole.append(place)
        refined.append(place + torch.where(part.abs() > MIN_FRACTION, part, 0.0))
    return torch.stack((torch.stack(whole, -1), torch.stack(refined, -1)), 2).flatten(1, 2)


def _hann(length: int, device: torch.device) -> Tensor:
    """Return a Hann window [length] without its zeros, so that a side of one px keeps a weight."""
    return torch.hann_window(length + 2, periodic=False, device=device)[1:-1]


def _difference(before: Tensor, after: Tensor, shift: Tensor) -> Tensor:
    """Return the mean absolute difference of frames in what both show, if the first has moved by `shift`:
    [B].
    """
    size = (before.shape[-2], before.shape[-1])
    there = moved(before, shift / torch.tensor(size, device=shift.device), "border")
    both = covered(size, shift)
    difference = (after - there).abs().mean(1) * both
    return difference.sum((1, 2)) / both.sum((1, 2)).clamp_min(1)


COMPARED_SIDE = 128  # most px each way of the pictures that the frames of a clip are compared in
FRAMES = 8  # latest frames before an image that are compared
CUT = 0.3  # mean absolute difference of brightness between two frames above which a scene was cut
CHANGED = 0.02  # mean absolute difference of brightness above which a cell has changed
OLD = 0.7  # share of the old map in a running mean; the rest is the new map's


@dataclass(frozen=True, eq=False)
class Motion:
    """The latest frames of a clip at a small size, with shifts, cuts and changes between them."""

    small: Tensor  # [B, T + 1, h', w'] in [0, 1], brightness of the frames, oldest first, the image last
    grid: Grid2D

    @classmethod
    def of(cls, previous_frames: Tensor, image: Tensor, grid: Grid2D) -> Motion:
        """Return the motion up to an image [B, 3, h, w] from the frames before it [B, T, 3, h, w]."""
        size = (min(COMPARED_SIDE, image.shape[-2]), min(COMPARED_SIDE, image.shape[-1]))
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
        """Mean change of brightness from each frame to the next once the shift is undone, [B, T, H, W]."""
        before, after = (x.flatten(0, 1)[:, None] for x in (self.small[:, :-1], self.small[:, 1:]))
        shift = self.shifts.flatten(0, 1)
        at_hand = moved(torch.ones_like(before), shift)
        # What the shift uncovers was not in the frame before: it is compared in place.
        aligned = torch.where(at_hand > 0.999, moved(before, shift), before)
        return cell_mean((after - aligned).abs(), self.grid).view(*self.small.shape[:1], -1, *self.grid)

    def followed(self, maps: Tensor) -> Tensor:
        """Return a map [B, H, W] of the frame before, where its content is now; 0 after a cut and in what is
        new.
        """
        here = moved(maps[:, None], self.shifts[:, -1])[:, 0]
        return here * ~self.cuts[:, -1, None, None]

    def smoothed(self, history: Tensor) -> Tensor:
        """Return the running mean of relevance [B, T', H, W] of the latest frames, [B, H, W], moved with
        content.

        It starts again at a cut, from the first map after it: 0 if the cut is the latest change.
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
