"""PaddleOCR-VL: as Qwen2.5-VL, but patches lie in raster order, and are merged behind the tower.

So the patches of a cell don't stand together. Some cells alone are encoded all the same: the tower takes
patches in any order with the positions that they have in the whole, and the projector merges those of each
cell once they stand together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.vision_utils import (
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
)

from arr_coc.families.qwen2_5_vl import Qwen2_5VLAdapter
from arr_coc.seam.base import VisualFeatures
from arr_coc.seam.partial import numbered_cells, patch_rows
from arr_coc.seam.patching import coarse_views, to_pictures


class PaddleOCRVLAdapter(Qwen2_5VLAdapter):
    """PaddleOCR-VL."""

    model_types = ("paddleocr_vl",)
    title = "PaddleOCR-VL"
    mean = (0.48145466, 0.4578275, 0.40821073)
    std = (0.26862954, 0.26130258, 0.27577711)
    clips = False
    by_cells = False

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pictures that the image processor cut into patches."""
        side = self.model.config.vision_config.patch_size
        return to_pictures(inputs["pixel_values"], inputs["image_grid_thw"].tolist(), 1, side, 1)

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Run the tower on the patches of the kept cells, each at its place in the full grid."""
        layout, grid, unit = self.layout(inputs), inputs["image_grid_thw"], self.merge**2
        counts = [len(indices) for indices in keep]
        if counts == layout.counts:  # in the stock model's own order, for its own results to the last bit
            return replace(self.features(inputs), cells=[])
        inner, tower = self.model.base_model, self.tower
        cells = numbered_cells(layout, keep)
        rows = cells_in_raster(grid, self.merge).to(cells.device)[patch_rows(cells, unit)]
        ends = torch.tensor([0, *counts], device=cells.device).cumsum(0)
        embeddings = tower.vision_model.embeddings
        indices, weights = get_vision_interpolation_indices_and_weights(
            grid,
            num_grid_per_side=embeddings.num_grid_per_side,
            mode=embeddings.interpolation_mode,
            align_corners=embeddings.interpolation_align_corners,
            spatial_merge_size=1,
        )
        output = tower(
            pixel_values=inputs["pixel_values"][rows].type(tower.dtype)[None],
            grid_thw=grid,
            position_ids=get_vision_position_ids(grid, 1)[rows],
            cu_seqlens=(ends * unit).unique_consecutive().int(),
            interp_indices=indices[rows],
            interp_weights=weights[rows],
        )
        hidden = output.last_hidden_state.reshape(len(rows), -1)
        # To the projector the kept cells are a picture one cell wide, whose patches follow row by row.
        strip = torch.tensor([[1, self.merge * len(cells), self.merge]], device=grid.device)
        tokens = inner.projector(hidden, strip)
        return VisualFeatures(list(tokens.split(counts)), [], layout.grids, [], type(output))

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """The pictures scaled down and cut into patches again."""
        grid, patch = inputs["image_grid_thw"], self.model.config.vision_config.patch_size
        grids = self.layout(inputs).grids
        views = coarse_views(self.patches(inputs), grids, cells, self.merge * patch)
        sizes = [(1, view.shape[1] // patch, view.shape[2] // patch) for view in views]
        return {
            "pixel_values": torch.cat([_patches(view, patch) for view in views]),
            "image_grid_thw": torch.tensor(sizes, dtype=grid.dtype, device=grid.device),
        }


def _patches(picture: Tensor, patch: int) -> Tensor:
    """The patches [n, 3, p, p] of a picture, raster order."""
    blocks = picture.unfold(1, patch, patch).unfold(2, patch, patch)  # (3, h, w, p, p)
    return blocks.permute(1, 2, 0, 3, 4).flatten(0, 1)


def cells_in_raster(grid: Tensor, merge: int) -> Tensor:
    """The patches of all images, numbered in raster order, as they stand cell by cell: long [n]."""
    orders, start = [], 0
    for t, h, w in grid.tolist():
        numbered = start + torch.arange(t * h * w).view(t, h // merge, merge, w // merge, merge)
        orders.append(numbered.transpose(2, 3).flatten())
        start += t * h * w
    return torch.cat(orders)
