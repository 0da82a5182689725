"""The context of channel groups: the inputs of one texture array and the maps that groups share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F
from kornia.color import rgb_to_grayscale, rgb_to_linear_rgb
from kornia.filters import box_blur, gaussian_blur2d
from torch import Tensor

# Filters on maps [B, c, h, w], each a function of tensors.
#
# `cell_mean`, `sobel` and `laplacian` are sums of slices, several times faster on a CPU than pooling or
# convolving one channel; torch's and kornia's own filters are their reference in the tests.


def cell_mean(x: Tensor, grid: tuple[int, int]) -> Tensor:
    """Mean over each cell of a grid (H, W), [B, c, h, w] -> [B, c, H, W].

    Cells are those of `adaptive_avg_pool2d`: they overlap where the grid does not divide the map.
    """
    (h, w), (rows, columns) = x.shape[-2:], grid
    if h % rows or w % columns:
        return F.adaptive_avg_pool2d(x, grid)
    return x.unflatten(-2, (rows, -1)).mean(-2).unflatten(-1, (columns, -1)).mean(-1)


def _replicate_border(x: Tensor) -> Tensor:
    """Repeat the border by one pixel, [B, 1, h, w] -> [B, 1, h + 2, w + 2]."""
    return F.pad(x, (1, 1, 1, 1), mode="replicate")


def sobel(luma: Tensor) -> tuple[Tensor, Tensor]:
    """Sobel derivatives 4 d/dx and 4 d/dy of a map [B, 1, h, w]: 4 at a straight black-white edge."""
    x = _replicate_border(luma)
    smooth = torch.add(x[..., :-2, :], x[..., 1:-1, :], alpha=2).add_(x[..., 2:, :])  # (B, 1, h, w + 2)
    step = x[..., 2:, :] - x[..., :-2, :]
    dy = torch.add(step[..., :-2], step[..., 1:-1], alpha=2).add_(step[..., 2:])
    return smooth[..., 2:] - smooth[..., :-2], dy


def laplacian(luma: Tensor) -> Tensor:
    """Sum of the eight neighbours less eight times the pixel, [B, 1, h, w]."""
    x = _replicate_border(luma)
    columns = (x[..., :-2, :] + x[..., 1:-1, :]).add_(x[..., 2:, :])  # (B, 1, h, w + 2)
    return (columns[..., :-2] + columns[..., 1:-1]).add_(columns[..., 2:]).sub_(luma, alpha=9)


def surround(x: Tensor, cells: float) -> Tensor:
    """Gaussian blur of a map on the grid, [B, c, H, W]; `cells` is the standard deviation in cells."""
    size = 2 * int(3 * cells) + 1
    return gaussian_blur2d(x, (size, size), (cells, cells), border_type="replicate")


def distance_to(marked: Tensor) -> Tensor:
    """Distance of each cell to the nearest marked one, bool [B, H, W] -> [B, H, W].

    A share of the grid's diagonal; 1 everywhere where none is marked. Exact and separable: the least squared
    distance along rows first, then along columns.
    """
    rows, columns = marked.shape[-2:]
    far = float(rows**2 + columns**2)
    y, x = (torch.arange(n, device=marked.device, dtype=torch.float32) for n in (rows, columns))
    start = torch.where(marked, 0.0, far)  # (B, H, W)
    along = (start[:, :, None, :] + (x[:, None] - x) ** 2).amin(-1)  # (B, H, W)
    squared = (along[:, None] + ((y[:, None] - y) ** 2)[None, :, :, None]).amin(2)  # (B, H, W)
    return (squared / far).clamp(max=1).sqrt()


# The motion of a whole picture: its shift between two frames, and maps that are moved along with it.
#
#     point_shift(before [B, c, h, w], after) -> [B, 2]      by how many points (down, right) it moved
#     phase_shift(before, after) -> [B, 2]                   the same in shares of the sides
#     layer_shift(before, after) -> [B, 2]                   likewise, of a part of the picture behind one
# that
#                                                            stands still
#     moved(maps [B, c, H, W], shift)                        maps moved by shares of their sides
#
# The movement of single things is not followed. On an accelerator no value is read back.

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


# What changed and what moved in the latest frames of a clip, on a grid of cells.
#
#     clip = Clip.of(previous_frames [B, T, 3, h, w], image [B, 3, h, w], grid)
#
# Frames are compared in brightness, reduced to at most SMALL px each way. One shift of the whole picture is
# estimated between each frame and the next, by phase correlation; what moves within a picture is change.
# A cut (mean absolute difference of two frames above CUT) is never bridged by a shift.

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


# Principal components of an encoder's features: fitted once, saved, and read again.
#
#     basis = fit_basis([features [B, F, h, w], ...])       or [N, F], one row for each place
#     basis.save("basis.safetensors");  Basis.load("basis.safetensors")
#     basis.project(features) -> [B, 16, h, w] in [0, 1]
#
# Features are divided by their length first: a few directions of a language model's visual tokens are
# hundreds
# of times longer than the others, and would be all that a basis of the features themselves describes.

COMPONENTS = 16
"""Components of a basis unless a call says otherwise: channels of the group "components"."""
SPREAD = 2.5
"""Standard deviations of a component, each way from its mean, that become 0 and 1."""
FORMAT = "arr-coc basis 1"
MOST_BYTES = 64_000_000
"""The most bytes of a basis file."""


@dataclass(frozen=True, eq=False)
class Basis:
    """The leading principal components of unit features, float32.

    Attributes:
        mean: [F], mean of the unit features that it was fitted on.
        components: [n, F], orthonormal rows, the widest first; rows of zeros where the features span fewer.
        deviations: [n], standard deviation along each component.
        source: what the features are of, such as the name of a checkpoint.
    """

    mean: Tensor
    components: Tensor
    deviations: Tensor
    source: str = ""

    def __post_init__(self) -> None:
        """Check the shapes and that all is finite.

        Raises:
            ValueError: they don't fit.
        """
        shapes = [tuple(x.shape) for x in (self.mean, self.components, self.deviations)]
        width, count = self.mean.numel(), self.deviations.numel()
        if shapes != [(width,), (count, width), (count,)] or 0 in (width, count):
            raise ValueError(f"a basis is a mean [F], components [n, F] and deviations [n], got {shapes}")
        for name, x in (
            ("mean", self.mean),
            ("components", self.components),
            ("deviations", self.deviations),
        ):
            if x.dtype != torch.float32 or not (x.device.type == "meta" or bool(x.isfinite().all())):
                raise ValueError(f"{name} of a basis must be finite float32, got {x.dtype}; fit it again")

    @property
    def width(self) -> int:
        """F, width of the features."""
        return len(self.mean)

    @property
    def count(self) -> int:
        """n, number of components."""
        return len(self.components)

    def to(self, device: torch.device | str) -> Basis:
        """The same basis on a device."""
        parts = {name: getattr(self, name).to(device) for name in ("mean", "components", "deviations")}
        return replace(self, **parts)

    def project(self, features: Tensor) -> Tensor:
        """Components of features, [B, F, h, w] -> float32 [B, n, h, w] in [0, 1]; 0.5 is the mean.

        Finite for any finite features. A component along which nothing varied is 0.5.

        Raises:
            ValueError: features of another width.
        """
        if features.ndim != 4 or features.shape[1] != self.width:
            raise ValueError(
                f"this basis is for features [B, {self.width}, h, w], got {tuple(features.shape)}; "
                "fit one on features of that encoder with fit_basis"
            )
        centred = _unit(features, dim=1) - self.mean.view(-1, 1, 1)
        along = torch.einsum("bfhw,nf->bnhw", centred, self.components)
        spread = 2 * SPREAD * self.deviations.clamp_min(1e-6)
        return (0.5 + along / spread.view(-1, 1, 1)).clamp(0, 1)

    def save(self, path: str | Path) -> None:
        """Write the basis as one safetensors file.

        Raises:
            OSError: the folder is missing or can't be written to.
        """
        from arr_coc.files.saved import write_tensors  # which stands above the texture

        tensors = {name: getattr(self, name) for name in ("mean", "components", "deviations")}
        write_tensors(tensors, Path(path), {"format": FORMAT, "source": self.source})

    @classmethod
    def load(cls, path: str | Path) -> Basis:
        """Read the basis that `save` wrote, on the CPU.

        Raises:
            ValueError: no such file, or one that is no basis.
        """
        from safetensors import safe_open

        from arr_coc.files.saved import reading

        place = Path(path)
        with reading(f"{str(place)!r} is no basis of features", "write it again with Basis.save"):
            if place.stat().st_size > MOST_BYTES:
                raise ValueError(f"it is larger than {MOST_BYTES / 1e6:g} MB")
            with safe_open(place, framework="pt") as file:
                about = file.metadata() or {}
                if about.get("format") != FORMAT:
                    raise ValueError(f"its format is {about.get('format')!r} and not {FORMAT!r}")
                parts = {name: file.get_tensor(name) for name in ("mean", "components", "deviations")}
            return cls(**parts, source=about.get("source", ""))


def fit_basis(features: Tensor | Iterable[Tensor], count: int = COMPONENTS, source: str = "") -> Basis:
    """Fit the principal components of an encoder's features.

    The same features in the same order give the same basis on one machine: the covariance is summed in
    float64 and taken apart exactly, and a component points to where its largest entry is positive.

    Args:
        features: float [N, F] or [B, F, h, w], or several of either, all of one width; of some hundred views.
        count: n, number of components.
        source: what they are of, kept in the file.

    Raises:
        ValueError: no features, of several widths, or not finite.
    """
    total, square, number = None, None, 0
    for part in [features] if isinstance(features, Tensor) else features:
        rows = part.movedim(1, -1).flatten(0, -2) if part.ndim == 4 else part
        if (
            rows.ndim != 2
            or not rows.is_floating_point()
            or (total is not None and rows.shape[1] != len(total))
        ):
            width = "F" if total is None else len(total)
            raise ValueError(
                f"features must be float [N, {width}] or [B, {width}, h, w], got {tuple(part.shape)}"
            )
        if not bool(rows.isfinite().all()):
            raise ValueError("features must be finite, got NaN or infinity; check the encoder that made them")
        rows = _unit(rows, dim=-1).cpu().double()
        total = rows.sum(0) + (0 if total is None else total)
        square = rows.T @ rows + (0 if square is None else square)
        number += len(rows)
    if total is None or square is None or not number or count < 1:
        raise ValueError(f"a basis of {count} components can't be fitted on {number} features; pass some")
    mean = total / number
    values, vectors = torch.linalg.eigh(square / number - mean[:, None] * mean)  # rising
    rows, values = vectors.T.flip(0)[:count], values.flip(0)[:count]
    rows = torch.where(values[:, None] > 1e-10 * values.amax().clamp_min(1e-12), rows, 0.0)
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    rows = torch.where(largest < 0, -rows, rows)
    missing = count - len(rows)
    rows = torch.cat((rows, rows.new_zeros(missing, len(mean))))
    values = torch.cat((values.clamp_min(0), values.new_zeros(missing)))
    return Basis(mean.float(), rows.float(), values.sqrt().float(), source)


def _unit(x: Tensor, dim: int) -> Tensor:
    """Vectors along a dimension over their length, float32; zeros stay zeros, and nothing overflows."""
    x = x.float()
    x = x / x.abs().amax(dim, keepdim=True).clamp_min(1e-12)
    return x / x.norm(dim=dim, keepdim=True).clamp_min(1e-12)


Grid2D = tuple[int, int]

COARSE = 8
"""Pixels per cell, each way, of the coarse image that blurred maps are computed from."""

OPTIONAL_INPUTS: dict[str, str] = {
    "features": "encoder features on the grid, float [B, D, H, W]",
    "previous_frames": "the frames before, oldest first, float [B, T, 3, h, w] in [0, 1]",
    "previous_relevance": "relevance maps of the frame before, float [B, H, W] in [0, 1]",
    "relevance_history": "relevance maps of the frames before, oldest first, float [B, T, H, W] in [0, 1]",
    "attention_history": "maps of earlier questions, oldest first, float [B, Q, H, W] in [0, 1]",
    "text_evidence": "how likely print stands at each place, any size, float [B, h', w'] in [0, 1]",
    "coarse_features": "encoder features of a coarse view of the image, any size, float [B, F, h', w']",
    "basis": "principal components of the encoder of `coarse_features`, a `Basis` of `fit_basis`",
}
"""What a channel group may need beside the image, by the name of its field in `ChannelContext`."""


@lru_cache(maxsize=32)
def position_grid(grid: Grid2D, device: torch.device) -> Tensor:
    """Centre of each cell as a share of the image's height and width, [2, H, W]: y, then x, in (0, 1)."""
    y, x = ((torch.arange(n, device=device) + 0.5) / n for n in grid)
    return torch.stack(torch.meshgrid(y, x, indexing="ij"))


@dataclass(frozen=True, eq=False)
class ChannelContext:
    """The inputs of one texture array, and the maps that channel groups share.

    A shared map is computed when a group first reads it, and once. `generate_texture_array` makes the
    context from inputs that it has checked; all tensors are float32 on one device.

    Attributes:
        image: [B, 3, h, w] in [0, 1], RGB.
        grid: (H, W).
        features: [B, D, H, W], features of a vision encoder on the grid; None without.
        previous_frames: [B, T, 3, h, w] in [0, 1], the T >= 1 frames before the image, oldest first;
            None for a still image.
        previous_relevance: [B, H, W] in [0, 1], relevance of the cells in the frame before; None for a
            still image.
        relevance_history: [B, T, H, W] in [0, 1], relevance in each of `previous_frames`; None: that of the
            frame before is all that is at hand.
        attention_history: [B, Q, H, W] in [0, 1], where earlier questions about the image looked, oldest
            first; None before the first question.
        text_evidence: [B, h', w'] in [0, 1], how likely print stands at each place; None without.
        coarse_features: [B, F, h', w'], encoder features of a coarse view of the image; None without.
        basis: principal components of such features; None without.
    """

    image: Tensor
    grid: Grid2D
    features: Tensor | None = None
    previous_frames: Tensor | None = None
    previous_relevance: Tensor | None = None
    relevance_history: Tensor | None = None
    attention_history: Tensor | None = None
    text_evidence: Tensor | None = None
    coarse_features: Tensor | None = None
    basis: Basis | None = None

    def per_cell(self, x: Tensor) -> Tensor:
        """Mean over each cell, [B, c, any, any] -> [B, c, H, W]."""
        return cell_mean(x, self.grid)

    @cached_property
    def luma(self) -> Tensor:
        """Brightness of each pixel, [B, 1, h, w] in [0, 1]."""
        return rgb_to_grayscale(self.image)

    @cached_property
    def previous_luma(self) -> Tensor | None:
        """Brightness of each pixel in the latest frame before, [B, 1, h, w] in [0, 1]; None for a still."""
        return None if self.previous_frames is None else rgb_to_grayscale(self.previous_frames[:, -1])

    @cached_property
    def edges(self) -> Tensor:
        """Cell means of Sobel |d/dx|, |d/dy| and their length, [B, 3, H, W]; a black-white edge has 1."""
        dx, dy = sobel(self.luma)
        length = torch.hypot(dx, dy)  # a square root of zeros, which most of a page has, takes ten times that
        return torch.cat([self.per_cell(g) for g in (dx.abs_(), dy.abs_(), length)], dim=1) / 4

    @cached_property
    def coarse(self) -> Tensor:
        """The image reduced to at most COARSE x COARSE px per cell, [B, 3, h', w']."""
        h, w = (
            min(side, COARSE * cells) for side, cells in zip(self.image.shape[-2:], self.grid, strict=True)
        )
        return cell_mean(self.image, (h, w))

    @cached_property
    def coarse_luma(self) -> Tensor:
        """Brightness of the coarse image, [B, 1, h', w'] in [0, 1]."""
        return rgb_to_grayscale(self.coarse)

    @cached_property
    def colour(self) -> Tensor:
        """Mean RGB of each cell, [B, 3, H, W] in [0, 1]."""
        return self.per_cell(self.coarse)

    @cached_property
    def cell_luma(self) -> Tensor:
        """Brightness of each cell's mean colour, [B, 1, H, W] in [0, 1]."""
        return rgb_to_grayscale(self.colour)

    @cached_property
    def clip(self) -> Clip | None:
        """What changed and what moved in the latest frames up to the image; None for a still."""
        if self.previous_frames is None:
            return None
        return Clip.of(self.previous_frames, self.image, self.grid)

    @cached_property
    def position(self) -> Tensor:
        """Centre of each cell as a share of the height and of the width, [B, 2, H, W]: y, x in (0, 1)."""
        return position_grid(self.grid, self.image.device).expand(len(self.image), -1, -1, -1)

    @cached_property
    def eccentricity(self) -> Tensor:
        """Distance of each cell's centre from the image's, [B, 1, H, W] in [0, 1); 1 would be a corner."""
        return (self.position - 0.5).norm(dim=1, keepdim=True) * 2**0.5


# The registry of channel groups, and the presets made of them.

Channels = str | Sequence[str]

COSTS = ("free", "cheap", "costly")
"""Cost classes: from the grid alone; a few filters; a model, or rounds of clustering."""


@dataclass(frozen=True)
class ChannelGroup:
    """A named group of texture channels.

    Attributes:
        name: Name of the group, by which presets list it.
        count: Number of channels.
        source: Formula or paper.
        cost: "free" (from the grid alone), "cheap" (a few filters) or "costly" (see COSTS).
        compute: Context -> [B, count, H, W]; the result is clamped to [0, 1].
        channels: Names of the channels; by default "name.0", "name.1", ...
        spread: Names of those which measure variation *inside* a cell (0 when the cell is uniform).
        salient: Names of those which say that a cell stands out.
        needs: Optional inputs of the context that `compute` cannot do without, of `OPTIONAL_INPUTS`;
            a name or several. `compute` is called only where they are supplied.
        reads: Optional inputs that `compute` reads where they are supplied, and does without where not.
        neutral: The documented values of the channels where what the group reads is not supplied.
        price: What a costly group costs, in words, with what makes its inputs; times are CPU times of one
            core beside that of mvp13 (`runs/results/texture-groups.json`).

    Raises:
        ValueError: the name is empty, the channels' names repeat or do not fit the count, the cost, a need
            or a reading is unknown, or `compute` does not take one argument.
    """

    name: str
    count: int
    source: str
    cost: str
    compute: Callable[[ChannelContext], Tensor]
    channels: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    salient: tuple[str, ...] = ()
    needs: Collection[str] = frozenset()
    reads: Collection[str] = frozenset()
    neutral: str = ""
    price: str = ""

    @property
    def depends(self) -> frozenset[str]:
        """The inputs that the channels follow from beside the grid, by their names: what a cache compares.

        A "free" group depends on the grid alone; every other one on the image, too.
        """
        own = frozenset() if self.cost == "free" else frozenset({"image"})
        return own | frozenset(self.needs) | frozenset(self.reads)

    def __post_init__(self) -> None:
        """Name the channels, and check that the fields agree."""
        if not self.name:
            raise ValueError("a channel group needs a name, got ''")
        group = f"channel group {self.name!r}"
        names = tuple(self.channels) or tuple(f"{self.name}.{i}" for i in range(self.count))
        if self.count < 1 or len(names) != self.count or len(set(names)) != self.count:
            raise ValueError(f"{group}: count {self.count} does not fit its channels {names}")
        if unknown := {*self.spread, *self.salient} - set(names):
            raise ValueError(f"{group}: {sorted(unknown)} are not among its channels {names}")
        if self.cost not in COSTS:
            raise ValueError(f"{group}: cost {self.cost!r} is not one of {COSTS}")
        inputs: dict[str, frozenset[str]] = {}
        for what in ("needs", "reads"):
            names_of = getattr(self, what)
            inputs[what] = frozenset([names_of] if isinstance(names_of, str) else names_of)
            if unknown := inputs[what] - set(OPTIONAL_INPUTS):
                raise ValueError(f"{group}: {what} {sorted(unknown)} are not among {sorted(OPTIONAL_INPUTS)}")
        if not _takes_one_argument(self.compute):
            raise ValueError(
                f"{group}: compute must be a function of one argument, the ChannelContext "
                f"(the grid is `context.grid`), got {self.compute!r}"
            )
        object.__setattr__(self, "channels", names)
        for what, names_of in inputs.items():
            object.__setattr__(self, what, names_of)


def _takes_one_argument(function: object) -> bool:
    """Whether a call with one positional argument fits; True for a callable without a readable signature."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # compiled functions have no signature to read
        return True
    return True


CHANNEL_GROUPS: dict[str, ChannelGroup] = {}
"""The registered groups by name."""

_FULL = (
    "rgb", "position", "eccentricity", "edge_pair", "passes", "motion", "conspicuity", "edge_distance",
    "clusters", "text_mask", "components",
    "relevance_memory", "frame_change", "attention_memory", "change_memory",
)  # fmt: skip
_COSTLY = ("clusters", "text_mask", "components")

PRESETS: dict[str, tuple[str, ...]] = {
    "mvp13": ("rgb", "position", "sobel", "saliency", "grouping"),
    "fast13": (
        "rgb", "position", "eccentricity", "edge_pair", "passes", "motion",
        "centre_bias", "edge_distance",
    ),
    "full40": _FULL,
    "full20": tuple(name for name in _FULL if name not in _COSTLY),
}  # fmt: skip
"""Lists of group names by the name of the preset.

"full20" is "full40" without its costly groups. "full40" alone needs more than an image: `text_evidence`,
`coarse_features` and `basis`.
"""


def register_channel_group(group: ChannelGroup) -> None:
    """Make a group of channels available by its name.

    Registering an equal group again changes nothing.

    Raises:
        ValueError: the name is taken by a different group, or by a preset.
    """
    if group.name in PRESETS:
        raise ValueError(f"the channel group name {group.name!r} is taken by a preset; choose another")
    if CHANNEL_GROUPS.get(group.name, group) != group:
        raise ValueError(
            f"the channel group name {group.name!r} is taken by a different group; choose another, "
            f"or remove that one first with CHANNEL_GROUPS.pop({group.name!r})"
        )
    CHANNEL_GROUPS[group.name] = group


def channel_groups(channels: Channels = "mvp13") -> tuple[ChannelGroup, ...]:
    """The groups of a preset's name, or of a list of group names.

    Raises:
        ValueError: a name is unknown, or nothing is listed.
    """
    if isinstance(channels, str) and channels not in PRESETS:
        raise ValueError(
            f"unknown texture preset {channels!r}; use one of {sorted(PRESETS)} or list channel groups"
        )
    names = PRESETS[channels] if isinstance(channels, str) else tuple(channels)
    if not names or (unknown := [n for n in names if n not in CHANNEL_GROUPS]):
        wrong = unknown if names else "an empty list"
        raise ValueError(
            f"unknown channel groups: {wrong}; registered are {sorted(CHANNEL_GROUPS)}; import the module "
            "that registers one of your own first (arr-coc --import MODULE ...)"
        )
    return tuple(CHANNEL_GROUPS[n] for n in names)


def channel_names(channels: Channels = "mvp13") -> tuple[str, ...]:
    """Names of the C channels, in order."""
    return tuple(name for group in channel_groups(channels) for name in group.channels)


def texture_size(channels: Channels = "mvp13") -> int:
    """Number of channels C."""
    return sum(group.count for group in channel_groups(channels))


# Mean colour of each cell: red, green, blue.


def rgb(context: ChannelContext) -> Tensor:
    """Mean RGB of each cell, [B, 3, H, W]."""
    return context.colour


register_channel_group(
    ChannelGroup("rgb", 3, "mean of the cell", "cheap", rgb, channels=("red", "green", "blue"))
)


# Place of each cell in the image: y, x.


def position(context: ChannelContext) -> Tensor:
    """Centre of each cell as a share of the height and of the width, [B, 2, H, W]."""
    return context.position


register_channel_group(
    ChannelGroup("position", 2, "(i + 1/2) / cells", "free", position, channels=("y", "x"))
)


# Strength of edges in each cell: Sobel |d/dx|, |d/dy| and the length of both.

SOBEL_NAMES = ("sobel_x", "sobel_y", "sobel")


def sobel_channels(context: ChannelContext) -> Tensor:
    """Cell means of |d/dx|, |d/dy| and their length, [B, 3, H, W]; 1 where all is a black-white edge."""
    return context.edges


register_channel_group(
    ChannelGroup(
        "sobel",
        3,
        "mean of |Sobel| over the cell",
        "cheap",
        sobel_channels,
        channels=SOBEL_NAMES,
        spread=SOBEL_NAMES,
    )
)


# Three maps of what stands out: by spectrum, by brightness and by hue.

SALIENCY_NAMES = ("spectral_residual", "centre_surround", "colour_opponency")

SPECTRUM_SIZE = 64
"""Side in px of the reduced image whose spectrum is taken."""


def spectral_residual(luma: Tensor, grid: Grid2D) -> Tensor:
    """Spectral residual saliency (Hou & Zhang, CVPR 2007), [B, 1, h, w] -> [B, 1, H, W] in [0, 1).

    The log amplitude less its own local mean, with the phase kept, is turned back into an image and
    squared. A flat spectrum (noise) gives no peak and an empty one (a blank page) nothing: only what
    exceeds the image's mean counts, on a fixed scale.
    """
    side = SPECTRUM_SIZE
    small = F.adaptive_avg_pool2d(luma, (side, side))
    spectrum = torch.fft.fft2(small - small.mean(dim=(-2, -1), keepdim=True), norm="ortho")
    amplitude = spectrum.abs()
    log = torch.log(amplitude + 1e-2)
    residual = log - box_blur(log, 3, border_type="circular")
    # Dividing by (amplitude + 1e-2) keeps the phase, and keeps frequencies that hold only rounding noise
    # at zero.
    energy = torch.fft.ifft2(spectrum / (amplitude + 1e-2) * residual.exp(), norm="ortho").abs() ** 2
    energy = F.adaptive_avg_pool2d(gaussian_blur2d(energy, (9, 9), (2.0, 2.0), border_type="replicate"), grid)
    excess = (energy - energy.mean(dim=(-2, -1), keepdim=True)).relu()
    return excess / (excess + 3.0)


def centre_surround(cell_luma: Tensor) -> Tensor:
    """Contrast of a cell's brightness with its surroundings (Itti et al. 1998), [B, 1, H, W]."""
    return (cell_luma - surround(cell_luma, 3.0)).abs() * 2


def lab_hue(colour: Tensor) -> Tensor:
    """CIELAB a and b of sRGB under D65, [B, 3, H, W] -> [B, 2, H, W].

    Plain numbers in place of kornia's matrix, whose way to an accelerator would be waited for.
    """
    r, g, b = rgb_to_linear_rgb(colour).split(1, dim=1)
    xyz = torch.cat(
        (
            (0.412453 * r + 0.357580 * g + 0.180423 * b) / 0.95047,
            0.212671 * r + 0.715160 * g + 0.072169 * b,
            (0.019334 * r + 0.119193 * g + 0.950227 * b) / 1.08883,
        ),
        dim=1,
    )
    x, y, z = torch.where(xyz > 0.008856, xyz.clamp_min(0.008856) ** (1 / 3), 7.787 * xyz + 4 / 29).split(
        1, dim=1
    )
    return torch.cat((500 * (x - y), 200 * (y - z)), dim=1)


def colour_opponency(colour: Tensor) -> Tensor:
    """Contrast of a cell's hue (CIELAB a, b) with its surroundings, [B, 3, H, W] -> [B, 1, H, W]."""
    ab = lab_hue(colour)
    return (ab - surround(ab, 3.0)).norm(dim=1, keepdim=True) / 60


def saliency(context: ChannelContext) -> Tensor:
    """The three maps, [B, 3, H, W]; each is near 0 on a blank page."""
    maps = (
        spectral_residual(context.coarse_luma, context.grid),
        centre_surround(context.cell_luma),
        colour_opponency(context.colour),
    )
    return torch.cat(maps, dim=1)


register_channel_group(
    ChannelGroup(
        "saliency", 3, "Hou & Zhang 2007; Itti et al. 1998; CIELAB opponency", "cheap", saliency,
        channels=SALIENCY_NAMES, salient=SALIENCY_NAMES,
    )
)  # fmt: skip


# Spread inside each cell, and mean brightness of its neighbourhood.


def grouping(context: ChannelContext) -> Tensor:
    """Twice the standard deviation of brightness in the cell, and its mean over 3x3 cells, [B, 2, H, W]."""
    mean = context.per_cell(context.luma)
    variance = context.per_cell(context.luma**2) - mean**2
    # Rounding leaves some 1e-7 of variance in a uniform cell, which must count as none.
    spread = 2 * (variance - 1e-6).relu().sqrt()
    return torch.cat((spread, box_blur(mean, 3, border_type="replicate")), dim=1)


register_channel_group(
    ChannelGroup(
        "grouping", 2, "2 x standard deviation in the cell; mean over 3x3 cells", "cheap", grouping,
        channels=("spread", "group_mean"), spread=("spread",),
    )
)  # fmt: skip
