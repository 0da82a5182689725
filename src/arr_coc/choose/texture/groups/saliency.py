"""Three maps of what stands out: by spectrum, by brightness and by hue."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kornia.color import rgb_to_linear_rgb
from kornia.filters import box_blur, gaussian_blur2d
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext, Grid2D
from arr_coc.choose.texture.filters import surround
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group

NAMES = ("spectral_residual", "centre_surround", "colour_opponency")

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
        channels=NAMES, salient=NAMES,
    )
)  # fmt: skip
