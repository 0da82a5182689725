"""Qwen2.5-VL and Qwen2-VL: three-row positions, patches in merge-block order, and a sparse vision tower.

They have no deepstack. The adapters of later Qwen families override what their towers take besides patches
(`patch_places`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_position_ids,
    get_vision_window_index,
)

from arr_coc.seam.base import FamilyAdapter, Grid, Layout, VisualFeatures
from arr_coc.seam.halves import level_mergers, tower_halves
from arr_coc.seam.partial import kept_seqlens, kept_windows, numbered_cells, patch_rows
from arr_coc.seam.patching import coarse_grid, patch_map, patch_map_rows, shrink, to_patches, to_picture
from arr_coc.seam.tower_compressor import TowerCompressor


class Qwen2_5VLAdapter(FamilyAdapter):
    """Qwen2.5-VL and Qwen2-VL, and the base class of the later Qwen families."""

    model_types = ("qwen2_5_vl", "qwen2_vl")
    title = "Qwen2.5-VL, Qwen2-VL"
    sparse = True
    clips = True
    by_cells = True
    halves = True

    @property
    def merge(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.vision_config.spatial_merge_size

    @property
    def tower(self) -> Any:
        """The vision tower."""
        return self.model.base_model.visual

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Every token is a cell: the patch grid divided by the merge size."""
        return list(zip(self._grids(inputs), map(torch.arange, counts), strict=True))

    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Rotary positions of the whole prompt, computed by the model itself: [3, B, S]; or counted."""
        if self.plain_positions:
            return super().prompt_positions(inputs, attention_mask)
        ids = inputs["input_ids"]
        kinds = inputs.get("mm_token_type_ids")
        kinds = self.token_kinds(inputs) if kinds is None else kinds
        names = ("image_grid_thw", "video_grid_thw", "second_per_grid_ts")
        visual = {name: inputs[name] for name in names if inputs.get(name) is not None}
        positions, _ = self.model.model.get_rope_index(
            ids, mm_token_type_ids=kinds, attention_mask=attention_mask, **visual
        )
        return positions

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pictures that the image processor cut into patches."""
        vision = self.model.config.vision_config
        grids = inputs["image_grid_thw"].tolist()
        rows = inputs["pixel_values"].split([t * h * w for t, h, w in grids])
        pictures: list[Tensor] = []
        for patches, grid in zip(rows, grids, strict=True):
            shape = (grid, self.merge, vision.patch_size, vision.temporal_patch_size)
            first = to_picture(patches, *shape)
            frames = patches.unflatten(1, (-1, vision.temporal_patch_size, vision.patch_size**2))
            if not torch.equal(frames[:, :, 0], frames[:, :, -1]):
                # Of two pictures of a clip that one is looked at which shows more that is new.
                last = to_picture(patches, *shape, frame=-1)
                before = pictures[-1] if pictures and pictures[-1].shape == first.shape else first
                changed = [float((picture - before).abs().sum()) for picture in (first, last)]
                first = last if changed[1] > changed[0] else first
            pictures.append(first)
        return pictures

    @property
    def merger(self) -> Any:
        """The module that merges the patches of each cell."""
        return self.tower.merger

    def tower_order(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """Where some layers attend in windows, window by window."""
        tower = self.tower
        if (size := getattr(tower, "window_size", None)) is None:
            return None
        return get_vision_window_index(inputs["image_grid_thw"], self.merge, size, tower.patch_size)[0]

    # ---- encoding some cells alone --------------------------------------------------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        """Computed from `image_grid_thw` alone, since every token is a cell."""
        return Layout.of_grids(self._grids(inputs), inputs["image_grid_thw"].device)

    def patch_places(self, grid: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """Positions of some patches, in place of those that the tower computes.

        Args:
            grid: `image_grid_thw` [images, 3].
            rows: long [K], patches numbered over all images, in any order.
        """
        return {"position_ids": get_vision_position_ids(grid, self.merge)[rows]}

    def tower_arguments(self, grid: Tensor, cells: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """Positions and attention segments of the kept patches, in place of those that the tower computes.

        Args:
            grid: `image_grid_thw` [images, 3].
            cells: long [K], kept cells numbered over all images.
            rows: long [K*m*m], their patches.
        """
        arguments = self.patch_places(grid, rows)
        arguments["cu_seqlens"] = kept_seqlens(rows, get_vision_cu_seqlens(grid))
        tower = self.tower
        if (size := getattr(tower, "window_size", None)) is None:
            return arguments
        windows = get_vision_window_index(grid, self.merge, size, tower.patch_size)
        index, boundaries = kept_windows(cells, *windows, self.merge**2)
        return arguments | {"window_index": index, "cu_window_seqlens": boundaries}

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Run the tower on the patches of the kept cells, each at its place in the full grid."""
        layout, grid = self.layout(inputs), inputs["image_grid_thw"]
        cells = numbered_cells(layout, keep)
        rows = patch_rows(cells, self.merge**2)
        tower, counts = self.tower, [len(indices) for indices in keep]
        output = tower(
            inputs["pixel_values"][rows].type(tower.dtype),
            grid_thw=grid[[count > 0 for count in counts]],  # of the segments that are left
            return_dict=True,
            **self.tower_arguments(grid, cells, rows),
        )
        levels = getattr(output, "deepstack_features", None) or []
        return VisualFeatures(
            tokens=list(output.pooler_output.split(counts)),
            levels=[list(level.split(counts)) for level in levels],
            grids=layout.grids,
            cells=[],
            kind=type(output),
        )

    def encode_merged(self, inputs: Mapping[str, Any], compressor: TowerCompressor) -> VisualFeatures:
        """The first blocks on windows of patches, then each image's patches merged, then the other blocks."""
        if not self.halves:
            return super().encode_merged(inputs, compressor)
        tower, grid, m, grids = self.tower, inputs["image_grid_thw"], self.merge, self._grids(inputs)
        lower, upper = tower_halves(tower, compressor.first)
        patch = self.model.config.vision_config.patch_size
        order, ends = get_vision_window_index(grid, m, compressor.window * m * patch, patch)
        order, ends = order.to(grid.device), ends.to(grid.device)
        rows = patch_rows(order, m * m)
        windows = {"window_index": torch.arange(len(order), device=grid.device), "cu_window_seqlens": ends}
        below = lower(
            inputs["pixel_values"][rows].type(tower.dtype),
            grid_thw=grid,
            return_dict=True,
            cu_seqlens=ends,
            **self.patch_places(grid, rows),
            **(windows if getattr(tower, "window_size", None) is not None else {}),
        )
        cells = below.pooler_output[order.argsort()].split([t * h * w for t, h, w in grids])
        merged = [compressor.merge(patch_map(*each, m), m) for each in zip(cells, grids, strict=True)]
        coarse = [(x.shape[0], x.shape[2] // m, x.shape[3] // m) for x in merged]
        patches = torch.cat([patch_map_rows(x, m) for x in merged])
        output = upper(
            patches,
            grid_thw=torch.tensor(
                [(t, h * m, w * m) for t, h, w in coarse], dtype=grid.dtype, device=grid.device
            ),
            return_dict=True,
        )
        counts = [t * h * w for t, h, w in coarse]
        early = [merger(patches) for merger in level_mergers(tower, compressor.first)]
        levels = [*early, *(getattr(output, "deepstack_features", None) or [])]
        return VisualFeatures(
            tokens=list(output.pooler_output.split(counts)),
            levels=[list(level.split(counts)) for level in levels],
            grids=coarse,
            cells=[torch.arange(count, device=grid.device) for count in counts],
            kind=type(output),
        )

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """The pictures scaled down and cut into patches again."""
        vision, thw = self.model.config.vision_config, inputs["image_grid_thw"]
        m, p, frames = self.merge, vision.patch_size, vision.temporal_patch_size
        sizes = thw.tolist()
        if any(t != 1 for t, _, _ in sizes):
            raise ValueError(f"image_grid_thw {sizes} has clips; a coarse view is made of still images only")
        rows = inputs["pixel_values"].split([h * w for _, h, w in sizes])
        views, grids = [], []
        most = [cells] * len(sizes) if isinstance(cells, int) else cells
        for patches, (_, height, width), few in zip(rows, sizes, most, strict=True):
            h, w = (m * side for side in coarse_grid(height // m, width // m, few))
            if (h, w) != (height, width):
                picture = shrink(to_picture(patches, (1, height, width), m, p, frames), (h * p, w * p))
                patches = to_patches(picture, m, p, frames)
            views.append(patches)
            grids.append((1, h, w))
        return {
            "pixel_values": torch.cat(views),
            "image_grid_thw": torch.tensor(grids, dtype=thw.dtype, device=thw.device),
        }

    def _grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        """The merged grid (T, H, W) of each image."""
        return [(t, h // self.merge, w // self.merge) for t, h, w in inputs["image_grid_thw"].tolist()]
