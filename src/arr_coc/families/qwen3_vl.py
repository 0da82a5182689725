"""Qwen3-VL: as Qwen2.5-VL, with deepstack levels and a vision tower with learned position embeddings."""

from __future__ import annotations

from torch import Tensor
from transformers.vision_utils import get_vision_interpolation_indices_and_weights

from arr_coc.families.qwen2_5_vl import Qwen2_5VLAdapter


class Qwen3VLAdapter(Qwen2_5VLAdapter):
    """Qwen3-VL, dense and with experts. Its image processor normalises to [-1, 1]."""

    model_types = ("qwen3_vl", "qwen3_vl_moe")
    title = "Qwen3-VL"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def patch_places(self, grid: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """Also the learned position embeddings that each patch interpolates between, and their weights."""
        tower = self.tower
        indices, weights = get_vision_interpolation_indices_and_weights(
            grid,
            tower.num_grid_per_side,
            mode=tower.interpolation_mode,
            align_corners=tower.interpolation_align_corners,
            spatial_merge_size=self.merge,
        )
        places = {"interp_indices": indices[rows], "interp_weights": weights[rows]}
        return super().patch_places(grid, rows) | places
