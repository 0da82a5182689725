"""LLaVA-NeXT and LLaVA-OneVision: a base view, then the picture in tiles, a newline token after each row.

The cells are those of the tiled picture, unpadded. The base view (a coarse view of the whole) and the
newline tokens (which end the rows) are always kept and are not counted. An image that comes as a base view
alone (OneVision with several images in a prompt), or so thin that its tiles hold no whole patch of it, has
the cells of that view.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arr_coc.families.llava import LlavaAdapter
from arr_coc.seam.base import Grid, VisualFeatures


class Tiling(NamedTuple):
    """The place of one picture in its tiles, in patches."""

    tiles: tuple[int, int]  # (down, across)
    window: tuple[int, int, int, int]  # top, left, height, width of the unpadded picture
    grid: tuple[int, int]  # (H, W) of its tokens; smaller than the window if the model shrinks it

    @property
    def empty(self) -> bool:
        """Whether the picture is too thin for a patch: a side of its grid is 0."""
        return 0 in self.grid


class LlavaNextAdapter(LlavaAdapter):
    """LLaVA-NeXT (LLaVA-1.6)."""

    model_types = ("llava_next",)
    title = "LLaVA-NeXT"
    remark = "reads fine tiles by itself, all of them; base view and newline tokens always stay"
    by_crops = False  # its processor cuts tiles itself
    by_cells = False  # its tower sees tiles, and the whole picture besides

    def single_view(self, inputs: Mapping[str, Any], image: int) -> bool:
        """Whether the image comes as its base view alone."""
        return False

    def shrunk(self, height: int, width: int, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """The token grid of a picture of height x width patches."""
        return height, width

    def tiling(self, inputs: Mapping[str, Any], image: int) -> Tiling:
        """The tiling of one picture, by the model's own rules."""
        config, side = self.model.config, self.side
        size = [int(n) for n in inputs["image_sizes"][image]]
        # Imported here: reading this family's model takes as long as all adapters do.
        from transformers.models.llava_next.modeling_llava_next import (
            get_anyres_image_grid_shape,
            unpad_image,
        )

        tiles = get_anyres_image_grid_shape(
            size, config.image_grid_pinpoints, config.vision_config.image_size
        )
        full_height, full_width = tiles[0] * side, tiles[1] * side
        numbered = torch.arange(full_height * full_width).view(1, full_height, full_width)
        inside = unpad_image(numbered, size)[0]
        height, width = inside.shape
        top, left = divmod(int(inside[0, 0]), full_width) if inside.numel() else (0, 0)
        return Tiling(tiles, (top, left, height, width), self.shrunk(height, width, inputs))

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The tiled picture's grid, its cells after the base view and between newline tokens."""
        base = self.side**2
        layout: list[tuple[Grid, Tensor]] = []
        for image, count in enumerate(counts):
            expected, grid, cells = base + 1, (1, self.side, self.side), torch.arange(base)
            if not self.single_view(inputs, image):
                tiling = self.tiling(inputs, image)
                height, width = tiling.grid
                expected = base + height * (width + 1)
                if not tiling.empty:
                    numbered = base + torch.arange(height * (width + 1)).view(height, width + 1)
                    grid, cells = (1, height, width), numbered[:, :width].flatten()
            if count != expected:
                raise ValueError(
                    f"{self.model.config.model_type} made {count} tokens for image {image} where {expected} "
                    "were expected; only towers without a class token in their output are supported, or use "
                    "mode='full'"
                )
            layout.append((grid, cells))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The tiles joined, without the padding."""
        p = self.model.config.vision_config.patch_size
        covered = self.side * p
        pictures = []
        for image, views in enumerate(inputs["pixel_values"]):
            views = views[:, :, :covered, :covered]  # (views, 3, covered, covered), base view first
            tiling = None if self.single_view(inputs, image) else self.tiling(inputs, image)
            if tiling is None or tiling.empty:
                pictures.append(views[0])
                continue
            (down, across), (top, left, height, width), _ = tiling
            tiles = views[1 : 1 + down * across].view(down, across, 3, covered, covered)
            whole = tiles.permute(2, 0, 3, 1, 4).reshape(3, down * covered, across * covered)
            pictures.append(whole[:, top * p : (top + height) * p, left * p : (left + width) * p])
        return pictures


class LlavaOnevisionAdapter(LlavaNextAdapter):
    """LLaVA-OneVision: many tiles, shrunk to a maximum; of several images in a prompt, base views alone."""

    model_types = ("llava_onevision",)
    title = "LLaVA-OneVision"
    visual_names = (*LlavaNextAdapter.visual_names, "vision_aspect_ratio", "batch_num_images")
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def single_view(self, inputs: Mapping[str, Any], image: int) -> bool:
        """Whether the image shares its prompt with others."""
        numbers = inputs.get("batch_num_images")
        if numbers is None:
            return False
        return [n != 1 for n in torch.as_tensor(numbers).tolist() for _ in range(n)][image]

    def shrunk(self, height: int, width: int, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """The token grid shrunk to the number of tiles that `anyres_max_<n>` allows."""
        rule = inputs.get("vision_aspect_ratio") or self.model.config.vision_aspect_ratio
        most = int(rule.removeprefix("anyres_max_"))
        ratio = math.sqrt(height * width / (most * self.side**2))
        return (int(height // ratio), int(width // ratio)) if ratio > 1.1 else (height, width)
