"""The motion of a whole picture: its shift between two frames, and maps that are moved along with it.

    point_shift(before [B, c, h, w], after) -> [B, 2]      by how many points (down, right) it moved
    phase_shift(before, after) -> [B, 2]                   the same in shares of the sides
    layer_shift(before, after) -> [B, 2]                   likewise, of a part of the picture behind one that
                                                           stands still
    moved(maps [B, c, H, W], shift)                        maps moved by shares of their sides

The movement of single things is not followed. On an accelerator no value is read back.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PEAKS = 3
"""Of a correlation, the highest points that are tried as shifts."""
CERTAIN = 0.7
"""Share of the difference between two frames that a shift must leave at most, to be believed."""
STILL = 1e-4
"""Mean absolute difference below which two frames are the same."""
PART, PARTS = 8, 0.1
"""Side in points of the parts in which a picture that moves in part is compared, and the least share of all
of them that must have moved: below it a thing moves, and not the picture."""
APART = 0.02
"""Mean absolute difference from which a part has changed."""
TRACE = 0.1
"""Parts of a point up to which a shift is a whole one: moving by a trace would blur the picture."""


def point_shift(before: Tensor, after: Tensor) -> Tensor:
    """The shift of a picture between two frames by phase correlation (Kuglin & Hines, 1975).

    Of the highest points of the correlation, each as it is and by the vertex of the parabola through it, the
    one counts under which the frames agree best in what both show.

    Args:
        before: float [B, c, h, w], values in [0, 1].
        after: likewise.

    Returns:
        [B, 2], by how many points what is in `before` moved down and to the right in `after`; 0 where no
        shift explains the difference, or there is none.
    """
    same = (after - before).abs().mean((1, 2, 3))  # (B,)
    shifts = _candidates(before.mean(1), after.mean(1))  # (B, n, 2)
    apart = torch.stack([_apart(before, after, shift) for shift in shifts.unbind(1)], 1)  # (B, n)
    least, place = apart.min(1)
    best = shifts[torch.arange(len(place), device=place.device), place]
    return torch.where(((least < CERTAIN * same) & (same >= STILL))[:, None], best, 0.0)


def layer_shift(before: Tensor, after: Tensor) -> Tensor:
    """The shift of what moves in a picture of which a part stands still, such as captions over a page.

    As `point_shift`, but each part of `PART` x `PART` points may have moved or not: the shift counts under
    which the parts agree best, one way or the other.

    Args:
        before: float [B, c, h, w], values in [0, 1].
        after: likewise.

    Returns:
        [B, 2], by how many points (down, right); 0 where no shift explains the difference of at least
        `PARTS` of all parts, or there is none.
    """
    same = (after - before).abs().mean((1, 2, 3))  # (B,)
    side = min(PART, *before.shape[-2:])
    still = F.avg_pool2d((after - before).abs().mean(1)[:, None], side)  # (B, 1, h', w')
    shifts = _candidates(before.mean(1), after.mean(1))  # (B, n, 2)
    size = (before.shape[-2], before.shape[-1])
    apart, areas = [], []
    for shift in shifts.unbind(1):
        there = moved(before, shift / torch.tensor(size, device=shift.device), "border")
        difference = (after - there).abs().mean(1).masked_fill(~covered(size, shift), 1.0)
        along = F.avg_pool2d(difference[:, None], side)
        apart.append(torch.minimum(along, still).mean((1, 2, 3)))
        areas.append(((along < still / 2) & (still > APART)).float().mean((1, 2, 3)))
    least, place = torch.stack(apart, 1).min(1)
    rows = torch.arange(len(place), device=place.device)
    best, area = shifts[rows, place], torch.stack(areas, 1)[rows, place]
    return torch.where(((least < CERTAIN * same) & (area >= PARTS) & (same >= STILL))[:, None], best, 0.0)


def phase_shift(before: Tensor, after: Tensor) -> Tensor:
    """`point_shift` in shares of the height and of the width, [B, 2] in [-0.5, 0.5]."""
    return point_shift(before, after) / torch.tensor(before.shape[-2:], device=before.device)


def moved(maps: Tensor, shift: Tensor, rim: str = "zeros") -> Tensor:
    """Maps moved down and right by shares of their sides, linear between places.

    Args:
        maps: [B, c, H, W].
        shift: [B, 2] of (y, x).
        rim: what comes in from outside: "zeros", or "border", which repeats the rim.
    """
    eye = torch.eye(2, device=maps.device, dtype=maps.dtype).expand(len(maps), 2, 2)
    back = -2 * shift.flip(1).to(maps.dtype)[..., None]  # (B, 2, 1) of (x, y), in which a side is 2 long
    places = F.affine_grid(torch.cat((eye, back), 2), list(maps.shape), align_corners=False)
    return F.grid_sample(maps, places, mode="bilinear", padding_mode=rim, align_corners=False)


def covered(size: tuple[int, int], shift: Tensor) -> Tensor:
    """The points of a frame that a picture still covers when it has moved.

    Args:
        size: (h, w) points.
        shift: [B, 2] points (down, right).

    Returns:
        bool [B, h, w].
    """
    sides = [
        (place >= by) & (place <= side - 1 + by)
        for side, by in zip(size, shift.T[..., None], strict=True)
        for place in [torch.arange(side, device=shift.device)]
    ]
    return sides[0][:, :, None] & sides[1][:, None]


def _candidates(before: Tensor, after: Tensor) -> Tensor:
    """The likeliest shifts between pictures [B, h, w], the likeliest first: [B, n, 2] points."""
    h, w = before.shape[-2:]
    window = torch.outer(_hann(h, before.device), _hann(w, before.device))
    spectra = [torch.fft.rfft2((x - x.mean((-2, -1), keepdim=True)) * window) for x in (before, after)]
    cross = spectra[1] * spectra[0].conj()
    # Dividing by (length + 1e-3) weighs down frequencies that hold only rounding noise.
    surface = torch.fft.irfft2(cross / (cross.abs() + 1e-3), s=(h, w))  # (B, h, w)
    peaks = surface.flatten(1).topk(min(PEAKS, h * w)).indices  # (B, n)
    at = peaks // w, peaks % w
    rows = torch.arange(len(surface), device=surface.device)[:, None]
    whole, parts = [], []
    for axis, side in enumerate((h, w)):
        low, middle, high = (
            surface[rows, (at[0] + (step if axis == 0 else 0)) % h, (at[1] + (step if axis else 0)) % w]
            for step in (-1, 0, 1)
        )
        bend = 2 * middle - low - high
        part = torch.where(bend > 1e-6, 0.5 * (high - low) / bend.clamp_min(1e-6), 0.0).clamp(-0.5, 0.5)
        place = torch.where(at[axis] > side // 2, at[axis] - side, at[axis]).to(part)
        whole.append(place)
        parts.append(place + torch.where(part.abs() > TRACE, part, 0.0))
    return torch.stack((torch.stack(whole, -1), torch.stack(parts, -1)), 2).flatten(1, 2)


def _hann(length: int, device: torch.device) -> Tensor:
    """A Hann window [length] without its zeros, so that one px keeps a weight."""
    return torch.hann_window(length + 2, periodic=False, device=device)[1:-1]


def _apart(before: Tensor, after: Tensor, shift: Tensor) -> Tensor:
    """The mean absolute difference of frames in what both show, if the first has moved by `shift`: [B]."""
    size = (before.shape[-2], before.shape[-1])
    there = moved(before, shift / torch.tensor(size, device=shift.device), "border")
    both = covered(size, shift)
    difference = (after - there).abs().mean(1) * both
    return difference.sum((1, 2)) / both.sum((1, 2)).clamp_min(1)
