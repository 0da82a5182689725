"""The context of channel groups: the inputs of one texture array and the maps that groups share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from kornia.color import rgb_to_grayscale
from torch import Tensor

from arr_coc.choose.texture.basis import Basis
from arr_coc.choose.texture.clip import Clip
from arr_coc.choose.texture.filters import cell_mean, sobel

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
