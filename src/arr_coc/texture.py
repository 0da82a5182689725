"""The texture array: cheap features of every cell of an image, from its pixels alone.

    generate_texture_array(image [B, 3, h, w], grid=(H, W), channels) -> [B, C, H, W], each channel in
    [0, 1]

- Channels are data: `CHANNEL_GROUPS` holds named groups, `PRESETS` lists of them;
  `register_channel_group` adds yours.
- Any aspect ratio, any grid (it need not divide the image, and may be finer than it), deterministic, no
  gradient.
- Each image is scaled by fixed constants, never by its neighbours or by its own maximum: a blank page
  stays dark.
- Computed in float32, returned in the dtype and on the device of the image.

Gradients and spread see every pixel; blurred maps are computed from at most `COARSE` x `COARSE` px per
cell. Nothing waits for an accelerator. Costly groups (text mask, encoder features, clusters) and the
temporal ones are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
import torch.nn.functional as F
from kornia.color import rgb_to_grayscale, rgb_to_linear_rgb
from kornia.filters import box_blur, gaussian_blur2d
from torch import Tensor

Grid = tuple[int, int]
Channels = str | Sequence[str]

COARSE = 8
SPECTRUM_SIZE = 64


def cell_mean(x: Tensor, grid: Grid) -> Tensor:
    """[B, c, h, w] -> [B, c, H, W], the mean over each cell; they overlap where the grid does not divide."""
    (h, w), (rows, columns) = x.shape[-2:], grid
    if h % rows or w % columns:
        return F.adaptive_avg_pool2d(x, grid)
    # The same in two steps along memory, several times faster than pooling on a CPU.
    return x.unflatten(-2, (rows, -1)).mean(-2).unflatten(-1, (columns, -1)).mean(-1)


def _bordered(x: Tensor) -> Tensor:
    """[B, 1, h, w] with its border repeated, [B, 1, h + 2, w + 2]."""
    return F.pad(x, (1, 1, 1, 1), mode="replicate")


def sobel(luma: Tensor) -> tuple[Tensor, Tensor]:
    """4 d/dx and 4 d/dy of a map [B, 1, h, w]: a black-white edge has 4.

    Sums of slices, as in `laplacian`: convolving a single channel is slow on a CPU.
    """
    x = _bordered(luma)
    down = torch.add(x[..., :-2, :], x[..., 1:-1, :], alpha=2).add_(x[..., 2:, :])  # (B, 1, h, w + 2)
    step = x[..., 2:, :] - x[..., :-2, :]
    dy = torch.add(step[..., :-2], step[..., 1:-1], alpha=2).add_(step[..., 2:])
    return down[..., 2:] - down[..., :-2], dy


def laplacian(luma: Tensor) -> Tensor:
    """Sum of the eight neighbours less eight times a pixel, [B, 1, h, w]."""
    x = _bordered(luma)
    down = (x[..., :-2, :] + x[..., 1:-1, :]).add_(x[..., 2:, :])  # (B, 1, h, w + 2)
    return (down[..., :-2] + down[..., 1:-1]).add_(down[..., 2:]).sub_(luma, alpha=9)


class Pixels:
    """One batch of images and the views that channel groups share, each computed when first needed."""

    def __init__(self, image: Tensor, grid: Grid) -> None:
        """Hold `image` [B, 3, h, w], float32 in [0, 1], to be described on `grid`."""
        self.image = image
        self.grid = grid

    def per_cell(self, x: Tensor) -> Tensor:
        """[B, c, any, any] -> [B, c, H, W], the mean over each cell."""
        return cell_mean(x, self.grid)

    @cached_property
    def luma(self) -> Tensor:
        """[B, 1, h, w], brightness of every pixel."""
        return rgb_to_grayscale(self.image)

    @cached_property
    def edges(self) -> Tensor:
        """[B, 3, H, W], Sobel |d/dx|, |d/dy| and their length, cell means; a black-white edge has 1."""
        dx, dy = sobel(self.luma)
        length = dx.square().addcmul_(dy, dy).sqrt_()
        return torch.cat([self.per_cell(g) for g in (dx.abs_(), dy.abs_(), length)], dim=1) / 4

    @cached_property
    def coarse(self) -> Tensor:
        """[B, 3, h', w'], at most COARSE x COARSE px per cell."""
        h, w = (
            min(side, COARSE * cells) for side, cells in zip(self.image.shape[-2:], self.grid, strict=True)
        )
        return cell_mean(self.image, (h, w))

    @cached_property
    def colour(self) -> Tensor:
        """[B, 3, H, W], mean RGB of each cell."""
        return self.per_cell(self.coarse)


@dataclass(frozen=True)
class ChannelGroup:
    """A named group of texture channels.

    Attributes:
        name: Name of the group, by which presets list it.
        count: Number of channels.
        source: Formula or paper.
        cost: "free" (from the grid alone), "cheap" (a few filters) or "costly" (needs a model).
        compute: (pixels, (H, W)) -> [B, count, H, W]; it is clamped to [0, 1].
        channels: Names of the channels; by default "name.0", "name.1", ...
        spread: Names of those which measure variation *inside* a cell (0 when the cell is uniform).
        salient: Names of those which say that a cell stands out.

    Raises:
        ValueError: the names do not fit the count, or the cost is unknown.
    """

    name: str
    count: int
    source: str
    cost: str
    compute: Callable[[Pixels, Grid], Tensor]
    channels: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    salient: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Name the channels, and check that what is said about them agrees."""
        names = self.channels or tuple(f"{self.name}.{i}" for i in range(self.count))
        object.__setattr__(self, "channels", names)
        if self.count < 1 or len(names) != self.count:
            raise ValueError(
                f"channel group {self.name!r}: count {self.count} does not fit its channels {names}"
            )
        if unknown := set(self.spread + self.salient) - set(names):
            raise ValueError(
                f"channel group {self.name!r}: {sorted(unknown)} are not among its channels {names}"
            )
        if self.cost not in ("free", "cheap", "costly"):
            raise ValueError(f"channel group {self.name!r}: cost {self.cost!r} is not free, cheap or costly")


@lru_cache(maxsize=32)
def _position_grid(grid: Grid, device: torch.device) -> Tensor:
    """[2, H, W], y and x of each cell's middle in (0, 1)."""
    y, x = ((torch.arange(n, device=device) + 0.5) / n for n in grid)
    return torch.stack(torch.meshgrid(y, x, indexing="ij"))


def _position(pixels: Pixels, grid: Grid) -> Tensor:
    yx = _position_grid(grid, pixels.image.device)
    return yx.expand(len(pixels.image), -1, -1, -1)


def _eccentricity(pixels: Pixels, grid: Grid) -> Tensor:
    return (_position(pixels, grid) - 0.5).norm(dim=1, keepdim=True) * 2**0.5


def _centre_bias(pixels: Pixels, grid: Grid) -> Tensor:
    return torch.exp(-4 * _eccentricity(pixels, grid) ** 2)


def _edge_pair(pixels: Pixels, grid: Grid) -> Tensor:
    return torch.cat((pixels.edges[:, 2:], 1 - pixels.edges[:, 2:]), dim=1)


def _surround(x: Tensor, cells: float) -> Tensor:
    """Gaussian blur of a per-cell map; `cells` is its standard deviation."""
    size = 2 * int(3 * cells) + 1
    return gaussian_blur2d(x, (size, size), (cells, cells), border_type="replicate")


def spectral_residual(luma: Tensor, grid: Grid) -> Tensor:
    """What is unexpected in the spectrum (Hou & Zhang, CVPR 2007), [B, 1, h, w] -> [B, 1, H, W].

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


def centre_surround(colour: Tensor) -> Tensor:
    """Brightness of a cell against its surroundings (Itti et al. 1998), [B, 3, H, W] -> [B, 1, H, W]."""
    luma = rgb_to_grayscale(colour)
    return (luma - _surround(luma, 3.0)).abs() * 2


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
    """Hue of a cell (CIELAB a and b) against its surroundings, [B, 3, H, W] -> [B, 1, H, W]."""
    ab = lab_hue(colour)
    return (ab - _surround(ab, 3.0)).norm(dim=1, keepdim=True) / 60


def _saliency(pixels: Pixels, grid: Grid) -> Tensor:
    maps = (spectral_residual(rgb_to_grayscale(pixels.coarse), grid), centre_surround(pixels.colour))
    return torch.cat((*maps, colour_opponency(pixels.colour)), dim=1)


def _grouping(pixels: Pixels, grid: Grid) -> Tensor:
    mean = pixels.per_cell(pixels.luma)
    variance = pixels.per_cell(pixels.luma**2) - mean**2
    # Rounding leaves some 1e-7 of variance in a uniform cell, which must count as none.
    spread = 2 * (variance - 1e-6).relu().sqrt()
    return torch.cat((spread, box_blur(mean, 3, border_type="replicate")), dim=1)


def _passes(pixels: Pixels, grid: Grid) -> Tensor:
    high = pixels.per_cell(laplacian(pixels.luma).abs_()) / 8
    return torch.cat((high, _surround(rgb_to_grayscale(pixels.colour), 1.0)), dim=1)


def _edge_distance(pixels: Pixels, grid: Grid) -> Tensor:
    """Distance to the nearest cell with an edge, as a share of the grid's diagonal; 1 without edges.

    Exact and separable: the least squared distance along rows first, then along columns.
    """
    far = float(grid[0] ** 2 + grid[1] ** 2)
    y, x = (torch.arange(n, device=pixels.image.device, dtype=torch.float32) for n in grid)
    start = torch.where(pixels.edges[:, 2] > 0.05, 0.0, far)  # (B, H, W)
    rows = (start[:, :, None, :] + (x[:, None] - x) ** 2).amin(-1)  # (B, H, W)
    both = (rows[:, None] + ((y[:, None] - y) ** 2)[None, :, :, None]).amin(2)  # (B, H, W)
    return (both / far).clamp(max=1).sqrt().unsqueeze(1)


def _still(pixels: Pixels, grid: Grid) -> Tensor:
    return torch.zeros(len(pixels.image), 1, *grid, device=pixels.image.device)


CHANNEL_GROUPS: dict[str, ChannelGroup] = {}
PRESETS: dict[str, tuple[str, ...]] = {
    "mvp13": ("rgb", "position", "sobel", "saliency", "grouping"),
    "fast13": (
        "rgb", "position", "eccentricity", "edge_pair", "passes", "motion",
        "centre_bias", "edge_distance",
    ),
}  # fmt: skip


def register_channel_group(group: ChannelGroup) -> None:
    """Make a group of channels available by its name.

    Raises:
        ValueError: the name is taken by another group, or by a preset.
    """
    if group.name in PRESETS or CHANNEL_GROUPS.get(group.name, group) != group:
        raise ValueError(f"the channel group name {group.name!r} is taken; choose another")
    CHANNEL_GROUPS[group.name] = group


for _group in (
    ChannelGroup("rgb", 3, "mean of the cell", "cheap", lambda p, _: p.colour, ("red", "green", "blue")),
    ChannelGroup("position", 2, "(i + 1/2) / cells", "free", _position, ("y", "x")),
    ChannelGroup(
        "sobel", 3, "mean of |Sobel| over the cell", "cheap", lambda p, _: p.edges,
        ("sobel_x", "sobel_y", "sobel"), spread=("sobel_x", "sobel_y", "sobel"),
    ),
    ChannelGroup(
        "saliency", 3, "Hou & Zhang 2007; Itti et al. 1998; CIELAB opponency", "cheap", _saliency,
        ("spectral_residual", "centre_surround", "colour_opponency"),
        salient=("spectral_residual", "centre_surround", "colour_opponency"),
    ),
    ChannelGroup(
        "grouping", 2, "2 x standard deviation in the cell; mean over 3x3 cells", "cheap", _grouping,
        ("spread", "group_mean"), spread=("spread",),
    ),
    ChannelGroup("eccentricity", 1, "distance from the middle; 1 at a corner", "free", _eccentricity),
    ChannelGroup(
        "edge_pair", 2, "Sobel length e, and 1 - e", "cheap", _edge_pair, ("edges", "no_edges"),
        spread=("edges",), salient=("edges",),
    ),
    ChannelGroup(
        "passes", 2, "mean |Laplacian|; blurred brightness", "cheap", _passes, ("high_pass", "low_pass"),
        spread=("high_pass",),
    ),
    ChannelGroup("motion", 1, "0 for a still", "free", _still, salient=("motion.0",)),
    ChannelGroup("centre_bias", 1, "exp(-4 eccentricity^2)", "free", _centre_bias),
    ChannelGroup("edge_distance", 1, "Euclidean, to edges over 0.05", "cheap", _edge_distance),
):  # fmt: skip
    register_channel_group(_group)


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
        raise ValueError(f"unknown channel groups: {wrong}; registered are {sorted(CHANNEL_GROUPS)}")
    return tuple(CHANNEL_GROUPS[n] for n in names)


def channel_names(channels: Channels = "mvp13") -> tuple[str, ...]:
    """Names of the C channels, in order."""
    return tuple(name for group in channel_groups(channels) for name in group.channels)


def texture_size(channels: Channels = "mvp13") -> int:
    """C, the number of channels."""
    return sum(group.count for group in channel_groups(channels))


@torch.no_grad()
def generate_texture_array(image: Tensor, grid: Grid, channels: Channels = "mvp13") -> Tensor:
    """Describe every cell of an image by cheap features of its pixels.

    Args:
        image: Float [B, 3, h, w] in [0, 1], RGB, any size from 1x1 px.
        grid: (H, W), the merged token grid.
        channels: A preset ("mvp13", "fast13") or a list of names of channel groups.

    Returns:
        [B, C, H, W] in [0, 1], dtype and device of `image`, without gradient.

    Raises:
        ValueError: the image is not of that shape, kind and range (NaN included), the grid is empty, or
            a group is unknown or returns another shape than it declares. Reading a range back from an
            accelerator would wait for it: there an image out of range has a texture of NaN, which the
            allocator refuses by name.
    """
    if image.ndim != 4 or image.shape[1] != 3 or 0 in image.shape or not image.is_floating_point():
        raise ValueError(
            f"image must be float [B, 3, h, w], got {image.dtype} {tuple(image.shape)}; "
            "add a batch dimension, drop alpha, divide bytes by 255"
        )
    if len(grid) != 2 or min(grid) < 1:
        raise ValueError(f"grid must be (H, W) with at least one cell each way, got {grid}")
    values = image.float().contiguous()
    low, high = values.flatten(1).amin(1), values.flatten(1).amax(1)  # (B,)
    # Undoing a processor's normalisation in bfloat16 leaves values up to half a percent outside.
    sound = (low >= -0.01) & (high <= 1.01)
    if values.device.type == "cpu" and not bool(sound.all()):
        raise ValueError(
            f"image values must lie in [0, 1], got {low.min():g} to {high.max():g}; divide bytes by 255"
        )
    pixels = Pixels(values.clamp(0, 1), tuple(grid))
    parts = []
    for group in channel_groups(channels):
        part = group.compute(pixels, pixels.grid)
        if part.shape != (len(image), group.count, *grid):
            raise ValueError(
                f"channel group {group.name!r} returned {tuple(part.shape)} for a grid of {tuple(grid)}"
            )
        parts.append(part.clamp(0, 1))
    texture = torch.cat(parts, dim=1)
    return texture.where(sound.view(-1, 1, 1, 1), torch.nan).to(image.dtype)
