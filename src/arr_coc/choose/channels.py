"""Channels of the texture array: what a channel group is, what it reads, and the 13 default channels.

register_channel_group(ChannelGroup("warmth", 1, "red less blue", "cheap", compute))
compute(context: ChannelContext) -> [B, count, H, W]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from kornia.color import rgb_to_grayscale, rgb_to_linear_rgb
from kornia.filters import box_blur, gaussian_blur2d
from torch import Tensor

from arr_coc.choose.basis import Basis
from arr_coc.choose.filters import Grid2D, cell_mean, position_grid, sobel, surround
from arr_coc.choose.motion import Motion

COARSE = 8  # pixels per cell, each way, of the coarse image that blurred maps are computed from


class OptionalInput(NamedTuple):
    """What a channel group may need beside the image; `generate_texture_array` checks it."""

    shape: str  # its sides, "*" for any; "" for no tensor
    what: str  # for messages and help
    bounded: bool = True  # whether its values lie in [0, 1]


# What a channel group may need beside the image, by the name of its field in `ChannelContext`.
OPTIONAL_INPUTS: dict[str, OptionalInput] = {
    "features": OptionalInput("B * H W", "encoder features on the grid, float [B, D, H, W]", False),
    "previous_frames": OptionalInput(
        "B * 3 h w", "the frames before, oldest first, float [B, T, 3, h, w] in [0, 1]"
    ),
    "previous_relevance": OptionalInput(
        "B H W", "relevance maps of the frame before, float [B, H, W] in [0, 1]"
    ),
    "relevance_history": OptionalInput(
        "B * H W", "relevance maps of the frames before, oldest first, float [B, T, H, W] in [0, 1]"
    ),
    "attention_history": OptionalInput(
        "B * H W", "maps of earlier questions, oldest first, float [B, Q, H, W] in [0, 1]"
    ),
    "text_evidence": OptionalInput(
        "B * *", "how likely print stands at each place, any size, float [B, h', w'] in [0, 1]"
    ),
    "coarse_features": OptionalInput(
        "B * * *", "encoder features of a coarse view of the image, any size, float [B, F, h', w']", False
    ),
    "basis": OptionalInput(
        "", "principal components of the encoder of `coarse_features`, a `Basis` of `fit_basis`"
    ),
}


@dataclass(frozen=True, eq=False)
class ChannelContext:
    """The inputs of one texture array, float32 on one device, and the maps that channel groups share.

    A shared map is computed when a group first reads it, and once. Optional inputs are None if not supplied.
    """

    image: Tensor  # [B, 3, h, w] in [0, 1], RGB
    grid: Grid2D  # (H, W)
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
    def clip(self) -> Motion | None:
        """What changed and what moved in the latest frames up to the image; None for a still."""
        if self.previous_frames is None:
            return None
        return Motion.of(self.previous_frames, self.image, self.grid)

    @cached_property
    def position(self) -> Tensor:
        """Centre of each cell as a share of the height and of the width, [B, 2, H, W]: y, x in (0, 1)."""
        return position_grid(self.grid, self.image.device).expand(len(self.image), -1, -1, -1)

    @cached_property
    def eccentricity(self) -> Tensor:
        """Distance of each cell's centre from the image's, [B, 1, H, W] in [0, 1); 1 would be a corner."""
        return (self.position - 0.5).norm(dim=1, keepdim=True) * 2**0.5  # a corner is sqrt(1/2) away


Compute = Callable[[ChannelContext], Tensor]  # context -> [B, count, H, W]
COSTS = ("free", "cheap", "costly")  # from the grid alone; a few filters; a model, or rounds of clustering


@dataclass(frozen=True)
class ChannelGroup:
    """A named group of texture channels; `compute(context)` gives [B, count, H, W], clamped to [0, 1]."""

    name: str  # by which presets list it
    count: int
    source: str  # formula or paper
    cost: str
    compute: Compute
    channels: tuple[str, ...] = ()  # names; by default "name.0", "name.1", ...
    spread: tuple[str, ...] = ()  # names of those that measure variation inside a cell (0 when it is uniform)
    salient: tuple[str, ...] = ()  # names of those that say that a cell stands out
    needs: Collection[str] = frozenset()  # OPTIONAL_INPUTS without which it is an error to ask for the group
    reads: Collection[str] = frozenset()  # OPTIONAL_INPUTS that are read if they are supplied
    neutral: str = ""  # values of the channels if what the group reads is not supplied, in words
    price: str = ""  # of a costly group, in words; CPU times relative to mvp13
    depends: frozenset[str] = field(init=False, repr=False, compare=False)
    """Names of the inputs, beside the grid, that the channels depend on: what a cache compares."""

    def __post_init__(self) -> None:
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
        object.__setattr__(self, "channels", names)
        for what in ("needs", "reads"):
            listed = getattr(self, what)
            inputs = frozenset([listed] if isinstance(listed, str) else listed)
            if unknown := inputs - set(OPTIONAL_INPUTS):
                raise ValueError(f"{group}: {what} {sorted(unknown)} are not among {sorted(OPTIONAL_INPUTS)}")
            object.__setattr__(self, what, inputs)
        if not _takes_one_argument(self.compute):
            raise ValueError(
                f"{group}: compute must be a function of one argument, the ChannelContext "
                f"(the grid is `context.grid`), got {self.compute!r}"
            )
        own = frozenset() if self.cost == "free" else frozenset({"image"})
        object.__setattr__(self, "depends", own | frozenset(self.needs) | frozenset(self.reads))


def _takes_one_argument(function: object) -> bool:
    """Return whether a call with one argument fits; True for a callable without a readable signature."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # compiled functions have no signature to read
        return True
    return True


CHANNEL_GROUPS: dict[str, ChannelGroup] = {}  # the registered groups by name

_FULL = (
    "rgb", "position", "eccentricity", "edge_pair", "passes", "motion", "conspicuity", "edge_distance",
    "clusters", "text_mask", "components",
    "relevance_memory", "frame_change", "attention_memory", "change_memory",
)  # fmt: skip
_COSTLY = ("clusters", "text_mask", "components")

# "full20" is "full40" without its costly groups; only "full40" needs more than an image.
PRESETS: dict[str, tuple[str, ...]] = {
    "mvp13": ("rgb", "position", "sobel", "saliency", "grouping"),
    "fast13": (
        "rgb", "position", "eccentricity", "edge_pair", "passes", "motion",
        "centre_bias", "edge_distance",
    ),
    "full40": _FULL,
    "full20": tuple(name for name in _FULL if name not in _COSTLY),
}  # fmt: skip


def register_channel_group(group: ChannelGroup) -> None:
    """Make a group of channels available by its name; a ValueError if another group or a preset has it."""
    if group.name in PRESETS:
        raise ValueError(f"the channel group name {group.name!r} is taken by a preset; choose another")
    if CHANNEL_GROUPS.get(group.name, group) != group:
        raise ValueError(
            f"the channel group name {group.name!r} is taken by a different group; choose another, "
            f"or remove that one first with CHANNEL_GROUPS.pop({group.name!r})"
        )
    CHANNEL_GROUPS[group.name] = group


def channel_group(
    name: str, count: int, source: str, cost: str, **fields: Any
) -> Callable[[Compute], Compute]:
    """Return a decorator that registers a function as a `ChannelGroup` of these fields."""

    def register(compute: Compute) -> Compute:
        register_channel_group(ChannelGroup(name, count, source, cost, compute, **fields))
        return compute

    return register


# The 13 default channels, those of the preset "mvp13".


SOBEL_NAMES = ("sobel_x", "sobel_y", "sobel")
SALIENCY_NAMES = ("spectral_residual", "centre_surround", "colour_opponency")
SPECTRUM_SIZE = 64  # side in px of the reduced image whose spectrum is taken


@channel_group("rgb", 3, "mean of the cell", "cheap", channels=("red", "green", "blue"))
def rgb(context: ChannelContext) -> Tensor:
    """Mean RGB of each cell, [B, 3, H, W]."""
    return context.colour


@channel_group("position", 2, "(i + 1/2) / cells", "free", channels=("y", "x"))
def position(context: ChannelContext) -> Tensor:
    """Centre of each cell as a share of the height and of the width, [B, 2, H, W]."""
    return context.position


@channel_group("sobel", 3, "mean of |Sobel| over the cell", "cheap", channels=SOBEL_NAMES, spread=SOBEL_NAMES)
def sobel_channels(context: ChannelContext) -> Tensor:
    """Cell means of |d/dx|, |d/dy| and their length, [B, 3, H, W]; 1 where all is a black-white edge."""
    return context.edges


def spectral_residual(luma: Tensor, grid: Grid2D) -> Tensor:
    """Spectral residual saliency (Hou & Zhang, CVPR 2007), [B, 1, h, w] -> [B, 1, H, W] in [0, 1).

    Noise (a flat spectrum) and a blank page give nothing: only what exceeds the image's mean counts.
    """
    side = SPECTRUM_SIZE
    small = F.adaptive_avg_pool2d(luma, (side, side))
    spectrum = torch.fft.fft2(small - small.mean(dim=(-2, -1), keepdim=True), norm="ortho")
    amplitude = spectrum.abs()
    # 1e-2 bounds the logarithm where the spectrum is empty.
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
    """CIELAB a and b of sRGB under D65, [B, 3, H, W] -> [B, 2, H, W]."""
    # Plain numbers in place of kornia's matrix, whose copy to an accelerator would be waited for.
    r, g, b = rgb_to_linear_rgb(colour).split(1, dim=1)
    xyz = torch.cat(
        (
            (0.412453 * r + 0.357580 * g + 0.180423 * b) / 0.95047,
            0.212671 * r + 0.715160 * g + 0.072169 * b,
            (0.019334 * r + 0.119193 * g + 0.950227 * b) / 1.08883,
        ),
        dim=1,
    )
    # CIELAB's cube root, and its straight line near black; the clamp keeps the unused branch finite.
    x, y, z = torch.where(xyz > 0.008856, xyz.clamp_min(0.008856) ** (1 / 3), 7.787 * xyz + 4 / 29).split(
        1, dim=1
    )
    return torch.cat((500 * (x - y), 200 * (y - z)), dim=1)


def colour_opponency(colour: Tensor) -> Tensor:
    """Contrast of a cell's hue (CIELAB a, b) with its surroundings, [B, 3, H, W] -> [B, 1, H, W]."""
    ab = lab_hue(colour)
    return (ab - surround(ab, 3.0)).norm(dim=1, keepdim=True) / 60


@channel_group(
    "saliency", 3, "Hou & Zhang 2007; Itti et al. 1998; CIELAB opponency", "cheap", channels=SALIENCY_NAMES,
    salient=SALIENCY_NAMES,
)  # fmt: skip
def saliency_channels(context: ChannelContext) -> Tensor:
    """Return what stands out by spectrum, by brightness and by hue, [B, 3, H, W]; near 0 on a blank page."""
    maps = (
        spectral_residual(context.coarse_luma, context.grid),
        centre_surround(context.cell_luma),
        colour_opponency(context.colour),
    )
    return torch.cat(maps, dim=1)


@channel_group(
    "grouping", 2, "2 x standard deviation in the cell; mean over 3x3 cells", "cheap",
    channels=("spread", "group_mean"), spread=("spread",),
)  # fmt: skip
def grouping(context: ChannelContext) -> Tensor:
    """Twice the standard deviation of brightness in the cell, and its mean over 3x3 cells, [B, 2, H, W]."""
    mean = context.per_cell(context.luma)
    variance = context.per_cell(context.luma**2) - mean**2
    # Rounding leaves some 1e-7 of variance in a uniform cell, which must count as none.
    spread = 2 * (variance - 1e-6).relu().sqrt()
    return torch.cat((spread, box_blur(mean, 3, border_type="replicate")), dim=1)
