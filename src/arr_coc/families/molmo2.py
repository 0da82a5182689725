"""Molmo 2: a small view of the whole, then the picture from overlapping crops, a token after each row.

The cells are those of the crops, each pooled from patches that the processor lists. The tokens of the view of
the whole and those that end rows always stay. All tokens of an image read each other, the kept ones too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures


class Molmo2Adapter(FamilyAdapter):
    """Molmo 2. Dropping a token equals masking it, though tokens of an image read each other."""

    model_types = ("molmo2",)
    title = "Molmo 2"
    remark = "the view of the whole and the tokens after rows always stay"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The grid of the crops, behind the view of the whole."""
        return [
            ((1, height, width), low * wide + torch.arange(height * width))
            for low, wide, height, width in inputs["image_grids"].tolist()
        ]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The patches from which each cell is pooled, side by side; grey where the last ones lack some."""
        pixels, pooling = inputs["pixel_values"].flatten(0, 1), inputs["image_token_pooling"]
        pool, side = isqrt(pooling.shape[1]), isqrt(pixels.shape[1] // 3)
        pictures, end = [], 0
        for low, wide, height, width in inputs["image_grids"].tolist():
            start = end + low * wide
            end = start + height * width
            chosen = pooling[start:end].long()  # (H * W, pool * pool), -1 for none
            own = torch.where((chosen >= 0)[..., None], pixels[chosen.clamp_min(0)], 0)
            blocks = own.view(height, width, pool, pool, side, side, 3).permute(6, 0, 2, 4, 1, 3, 5)
            pictures.append(blocks.reshape(3, height * pool * side, width * pool * side))
        return pictures
