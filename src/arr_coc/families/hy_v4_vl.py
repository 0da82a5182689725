"""Hunyuan 4 VL: pictures of any size in raster order, a newline token of the encoder's own after each row.

The newline tokens end the rows, so they always stay and are not counted. The tower has no positions but those
that it interpolates for the whole picture, and it ends the rows itself, so it isn't run on some cells alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.patching import to_pictures


class HYV4VLAdapter(FamilyAdapter):
    """Hunyuan 4 VL, whose every token picks the earlier ones that it reads: of those that are kept."""

    model_types = ("hy_v4_vl",)
    title = "Hunyuan 4 VL"
    remark = (
        "from transformers 5.24 on; newlines stay; dropping equals masking while a token may pick every other"
    )

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The grid of merged patches, its cells between newline tokens."""
        merge = self.model.config.vision_config.spatial_merge_size
        layout: list[tuple[Grid, Tensor]] = []
        for (frames, high, wide), count in zip(inputs["image_grid_thw"].tolist(), counts, strict=True):
            height, width = high // merge, wide // merge
            numbered = torch.arange(count).view(frames, height, width + 1)
            layout.append(((frames, height, width), numbered[..., :width].flatten()))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pictures that the image processor cut into patches, row by row."""
        side = self.model.config.vision_config.patch_size
        return to_pictures(inputs["pixel_values"], inputs["image_grid_thw"].tolist(), 1, side, 1)
