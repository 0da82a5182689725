"""The texture array: cheap features in [0, 1] of every cell of an image, from its pixels.

    generate_texture_array(image [B, 3, h, w], grid=(H, W), channels) -> [B, C, H, W]

- Channels come in named groups. `CHANNEL_GROUPS` is the registry, `PRESETS` names lists of groups, and
  `register_channel_group(ChannelGroup(...))` adds a group; the built-in ones are in `groups`, a file each.
- A group computes from a `ChannelContext`: the image, the grid, maps that groups share and, where the
  caller passes them, encoder features and their `Basis`, evidence of print, the frames before, their
  relevance, and where earlier questions looked. What a group needs and does not get is an error; what it
  reads where it is there has a neutral value otherwise.
- A `TextureCache` keeps channels between calls by what their groups depend on.
- Any aspect ratio and any grid (it need not divide the image, and may be finer than it); deterministic;
  no gradient. Computed in float32, returned in the dtype and on the device of the image.
- Channels are scaled by fixed constants, never by the other images of a batch or by the image's own
  maximum: a blank page stays dark.
- On an accelerator no value is read back, so nothing waits for it.
"""

from __future__ import annotations

from arr_coc.choose.texture import groups as groups
from arr_coc.choose.texture.array import generate_texture_array
from arr_coc.choose.texture.basis import COMPONENTS, Basis, fit_basis
from arr_coc.choose.texture.cache import TextureCache
from arr_coc.choose.texture.clip import Clip
from arr_coc.choose.texture.context import COARSE, OPTIONAL_INPUTS, ChannelContext, Grid2D, position_grid
from arr_coc.choose.texture.filters import cell_mean, distance_to, laplacian, sobel, surround
from arr_coc.choose.texture.groups.saliency import (
    SPECTRUM_SIZE,
    centre_surround,
    colour_opponency,
    lab_hue,
    spectral_residual,
)
from arr_coc.choose.texture.motion import moved, phase_shift
from arr_coc.choose.texture.registry import (
    CHANNEL_GROUPS,
    COSTS,
    PRESETS,
    ChannelGroup,
    Channels,
    channel_groups,
    channel_names,
    register_channel_group,
    texture_size,
)

Pixels = ChannelContext
"""The context's name while it held pixels alone."""

__all__ = [
    "generate_texture_array",
    "ChannelContext", "ChannelGroup", "Channels", "Grid2D",
    "CHANNEL_GROUPS", "PRESETS", "COSTS", "OPTIONAL_INPUTS",
    "register_channel_group", "channel_groups", "channel_names", "texture_size",
    "Basis", "fit_basis", "COMPONENTS", "TextureCache", "Clip", "phase_shift", "moved",
    "cell_mean", "sobel", "laplacian", "surround", "distance_to", "position_grid", "COARSE",
    "spectral_residual", "centre_surround", "lab_hue", "colour_opponency", "SPECTRUM_SIZE",
    "Pixels",
]  # fmt: skip
