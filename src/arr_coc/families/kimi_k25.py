"""Kimi K2.5 and K2.6: pictures of any size, in patches row by row, every token a cell of merged patches.

The tower tells patches apart by interpolated positions of the whole: it isn't run on some cells alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.patching import to_pictures


class KimiK25Adapter(FamilyAdapter):
    """Kimi K2.5."""

    model_types = ("kimi_k25",)
    title = "Kimi K2.5"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)
    casts = False

    @property
    def merge(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.vision_config.merge_kernel_size[0]

    def grids(self, inputs: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Per image its rows and columns of patches."""
        return [(height, width) for _, height, width in inputs["image_grid_thw"].tolist()]

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The grid of merged patches."""
        grids = [(1, height // self.merge, width // self.merge) for height, width in self.grids(inputs)]
        return list(zip(grids, map(torch.arange, counts), strict=True))

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pictures that the image processor cut into patches, with what it padded them by."""
        side = self.model.config.vision_config.patch_size
        grids = [(1, height, width) for height, width in self.grids(inputs)]
        return to_pictures(inputs["pixel_values"], grids, 1, side, 1)
