"""LFM3-VL: pictures of any size in cells of 2x2 patches, positions counted along the prompt.

Layers of its tower are convolutions over the patches of the whole picture, so it isn't run on some cells
alone. As in LFM2-VL the language model has short convolutions over the tokens that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.patching import to_pictures


class Lfm3VLAdapter(FamilyAdapter):
    """LFM3-VL."""

    model_types = ("lfm3_vl",)
    recurrent = True
    casts = False
    title = "LFM3-VL"
    remark = "from transformers 5.24 on; convolutions have no masked equivalent of a dropped token"

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Every token is a cell: the patch grid divided by the merge size."""
        merge = self.model.config.vision_config.spatial_merge_size
        grids = [(t, h // merge, w // merge) for t, h, w in inputs["image_grid_thw"].tolist()]
        return list(zip(grids, map(torch.arange, counts), strict=True))

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pictures that the image processor cut into patches."""
        vision = self.model.config.vision_config
        shape = vision.spatial_merge_size, vision.patch_size, vision.temporal_patch_size
        return to_pictures(inputs["pixel_values"], inputs["image_grid_thw"].tolist(), *shape)
