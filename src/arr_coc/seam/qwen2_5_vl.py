"""Qwen2.5-VL and Qwen2-VL: three-row positions, patches in merge-block order, no deepstack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures


class Qwen2_5VLAdapter(FamilyAdapter):
    """Qwen2.5-VL and Qwen2-VL; the later Qwen families differ from it in little."""

    model_types = ("qwen2_5_vl", "qwen2_vl")
    visual_names = ("pixel_values", "image_grid_thw")

    def encode(self, inputs: Mapping[str, Any]) -> Any:
        """One tensor per image (and, in Qwen3-VL, per deepstack level and image)."""
        return self.model.get_image_features(
            inputs["pixel_values"], inputs["image_grid_thw"], return_dict=True
        )

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Every token is a cell: the patch grid divided by the merge size."""
        merge = self.model.config.vision_config.spatial_merge_size
        grids = [(t, h // merge, w // merge) for t, h, w in inputs["image_grid_thw"].tolist()]
        return [(grid, torch.arange(count)) for grid, count in zip(grids, counts, strict=True)]

    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Rotary positions of the whole prompt, computed by the model itself: [3, B, S]."""
        ids = inputs["input_ids"]
        kinds = inputs.get("mm_token_type_ids")
        kinds = (ids == self.image_token_id).int() if kinds is None else kinds
        positions, _ = self.model.model.get_rope_index(
            ids,
            mm_token_type_ids=kinds,
            image_grid_thw=inputs["image_grid_thw"],
            attention_mask=attention_mask,
        )
        return positions

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures) -> list[Tensor]:
        """Undo the merge-block patch order of the image processor."""
        vision = self.model.config.vision_config
        m, p, frames = vision.spatial_merge_size, vision.patch_size, vision.temporal_patch_size
        grids = inputs["image_grid_thw"].tolist()
        pictures = []
        for rows, (t, h, w) in zip(
            inputs["pixel_values"].split([t * h * w for t, h, w in grids]), grids, strict=True
        ):
            blocks = rows.view(t, h // m, w // m, m, m, -1, frames, p, p)[0, ..., 0, :, :]
            # (h/m, w/m, m, m, 3, p, p) -> (3, h/m, m, p, w/m, m, p); a still repeats its one frame
            pictures.append(blocks.permute(4, 0, 2, 5, 1, 3, 6).reshape(-1, h * p, w * p))
        return pictures
