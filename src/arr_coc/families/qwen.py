"""Families with Qwen's layout: pictures of any size, every token a cell of merge x merge patches.

    pixel_values [patches, 3 * t * p * p]    patches cell by cell, the cells row by row
    image_grid_thw [images, 3]               patches of each image: frames, rows, columns

Positions have three rows (frame, row, column). The tower takes any patches with their positions in the whole
picture, so some cells alone can be encoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from arr_coc.families.generic import GridAdapter
from arr_coc.seam.assembly import Layout, VisualFeatures
from arr_coc.seam.base import Encodes, Grid
from arr_coc.seam.pixels import (
    REMEDY,
    channels_first,
    channels_last,
    coarse_views,
    kept_seqlens,
    kept_windows,
    numbered_cells,
    patch_map,
    patch_map_rows,
    patch_rows,
    to_patches,
    to_picture,
    to_pictures,
)
from arr_coc.seam.tower_compressor import TowerCompressor, level_mergers, tower_halves


class Qwen2_5VLAdapter(GridAdapter):
    """Qwen2.5-VL, Qwen2-VL, and other language models on their vision tower.

    `sound`: prompts may hold sound, as those of the Omni thinkers; it is always kept.
    """

    encodes: Encodes = "cells"
    clips = True
    by_cells = True
    halves = True
    keeps_shape = True
    refines = True
    sound: bool = False

    @property
    def merge(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.vision_config.spatial_merge_size

    @property
    def frames(self) -> int:
        """Frames that one patch covers in time; a still picture is repeated to fill them."""
        return self.model.config.vision_config.temporal_patch_size

    @property
    def tower(self) -> Any:
        return self.model.base_model.visual

    def grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        return [(t, h // self.merge, w // self.merge) for t, h, w in inputs["image_grid_thw"].tolist()]

    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Rotary positions of the whole prompt, computed by the model itself: [3, B, S]; or counted."""
        if self.sound:
            return omni_positions(self.model, inputs, attention_mask)
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
        """Return the pictures that the image processor cut into patches; of a clip's step one of its two
        frames.
        """
        side, length = self.model.config.vision_config.patch_size, self.frames
        grids = inputs["image_grid_thw"].tolist()
        rows = inputs["pixel_values"].split([t * h * w for t, h, w in grids])
        pictures: list[Tensor] = []
        for patches, grid in zip(rows, grids, strict=True):
            shape = (grid, self.merge, side, length)
            first = to_picture(patches, *shape)
            frames = patches.unflatten(1, (-1, length, side**2))
            if not torch.equal(frames[:, :, 0], frames[:, :, -1]):
                # Of a clip's step the frame that shows more that is new.
                last = to_picture(patches, *shape, frame=-1)
                before = pictures[-1] if pictures and pictures[-1].shape == first.shape else first
                changed = [float((picture - before).abs().sum()) for picture in (first, last)]
                first = last if changed[1] > changed[0] else first
            pictures.append(first)
        return pictures

    @property
    def merger(self) -> Any:
        return self.tower.merger

    def tower_order(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """Return the tower's order of the cells: window by window where some layers attend in windows, else
        None.
        """
        tower = self.tower
        if (size := getattr(tower, "window_size", None)) is None:
            return None
        return get_vision_window_index(inputs["image_grid_thw"], self.merge, size, tower.patch_size)[0]

    # ---- encoding some cells alone --------------------------------------------------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        return Layout.of_grids(self.grids(inputs), inputs["image_grid_thw"].device)

    def patch_places(self, grid: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """Position arguments of the tower for patches `rows` long [K] (numbered over all images, any order).

        `grid` is `image_grid_thw` [images, 3].
        """
        return {"position_ids": get_vision_position_ids(grid, self.merge)[rows]}

    def tower_arguments(self, grid: Tensor, cells: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """Return the tower's positions and attention segments for kept `cells` [K] and their patches `rows`
        [K*m*m].

        Both are numbered over all images; `grid` is `image_grid_thw` [images, 3].
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
        return _features(output, counts, layout.grids, [])

    def encode_merged(self, inputs: Mapping[str, Any], compressor: TowerCompressor) -> VisualFeatures:
        """Run the first blocks on windows of patches, merge each image's patches, run the other blocks."""
        if not self.halves:
            return super().encode_merged(inputs, compressor)
        tower, grid, m, grids = self.tower, inputs["image_grid_thw"], self.merge, self.grids(inputs)
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
        # Back from window order to raster order, then image by image: [T*H*W, m*m*D].
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
        return _features(
            output, counts, coarse, [torch.arange(count, device=grid.device) for count in counts], early
        )

    @property
    def cell_px(self) -> int:
        return self.merge * self.model.config.vision_config.patch_size

    def with_pixels(self, inputs: Mapping[str, Any], pictures: Sequence[Tensor]) -> dict[str, Any]:
        grid, p, frames = inputs["image_grid_thw"], self.model.config.vision_config.patch_size, self.frames
        sizes = [(1, picture.shape[1] // p, picture.shape[2] // p) for picture in pictures]
        return {
            "pixel_values": torch.cat([to_patches(picture, self.merge, p, frames) for picture in pictures]),
            "image_grid_thw": torch.tensor(sizes, dtype=grid.dtype, device=grid.device),
        }

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        sizes = inputs["image_grid_thw"].tolist()
        if any(t != 1 for t, _, _ in sizes):
            raise ValueError(f"image_grid_thw {sizes} has clips; a coarse view is made of still images only")
        views = coarse_views(self.patches(inputs), self.grids(inputs), cells, self.cell_px)
        return self.with_pixels(inputs, views)


def _features(
    output: Any, counts: list[int], grids: list[Grid], cells: list[Tensor], early: Sequence[Tensor] = ()
) -> VisualFeatures:
    """Return the tokens and deepstack levels of a tower's output, `early` levels before its own."""
    levels = [*early, *(getattr(output, "deepstack_features", None) or [])]
    return VisualFeatures(
        tokens=list(output.pooler_output.split(counts)),  # merged tokens, image after image
        levels=[list(level.split(counts)) for level in levels],
        grids=grids,
        cells=cells,
        kind=type(output),
    )


class Qwen3VLAdapter(Qwen2_5VLAdapter):
    """Qwen3-VL: as Qwen2.5-VL, with deepstack levels and a tower with learned position embeddings."""

    mean = (0.5, 0.5, 0.5)  # pixels in [-1, 1]
    std = (0.5, 0.5, 0.5)

    def patch_places(self, grid: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """As Qwen2.5-VL's, and the learned embeddings that each patch interpolates between, with weights."""
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


class Glm4vAdapter(Qwen2_5VLAdapter):
    """GLM-4V and its successors: as Qwen2.5-VL, with learned positions, interpolated.

    Frames of a clip have placeholders of images; only `mm_token_type_ids` tells them apart.
    """

    halves = False  # its tower shrinks by a convolution between its blocks and its merger

    def token_kinds(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return the kinds that the processor gives; a ValueError where there is a clip and they are
        missing.
        """
        kinds = inputs.get("mm_token_type_ids")
        if kinds is not None:
            return kinds.int()
        if inputs.get("pixel_values_videos") is not None:
            raise ValueError(
                "mm_token_type_ids are missing, and the placeholders of a clip are those of images: pass all "
                "that the processor returns"
            )
        return super().token_kinds(inputs)


class Dots3NoteAdapter(Qwen2_5VLAdapter):
    """Dots 3 Note: as Qwen2.5-VL, with patches of one frame, and positions counted along the prompt."""

    clips = False
    frames = 1
    halves = False  # its tower normalises between its blocks and its merger

    @property
    def tower(self) -> Any:
        return self.model.base_model.vision_tower


class Cosmos3EdgeAdapter(Qwen2_5VLAdapter):
    """Cosmos 3 Edge: as Qwen2.5-VL, with patches of one frame, the colours of a pixel side by side.

    The tower adds learned positions, interpolated to the whole grid, to the patches; its layers have none.
    """

    clips = False  # its processor makes no prompt of a clip
    frames = 1
    halves = False  # its projector is no part of the tower

    @property
    def merger(self) -> Any:
        return self.model.base_model.projector

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        return super().patches({**inputs, "pixel_values": channels_first(inputs["pixel_values"])})

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Run the tower on the patches of the kept cells, each at its place in the full grid."""
        layout, grid, tower = self.layout(inputs), inputs["image_grid_thw"], self.tower
        rows = patch_rows(numbered_cells(layout, keep), self.merge**2)
        embeddings = tower.embeddings
        side = embeddings.position_embedding_size
        learned = embeddings.position_embedding.weight.view(side, side, -1)
        places = embeddings.resize_positional_embeddings(learned, grid, self.merge)
        hidden = embeddings.patch_embedding(inputs["pixel_values"][rows].type(tower.dtype)) + places[rows]
        ends = kept_seqlens(rows, get_vision_cu_seqlens(grid))
        hidden = tower.post_layernorm(tower.encoder(hidden, grid_thw=grid, cu_seqlens=ends))
        tokens = self.merger(hidden).split([len(indices) for indices in keep])
        return VisualFeatures(list(tokens), [], layout.grids, [], BaseModelOutputWithPooling)

    def with_pixels(self, inputs: Mapping[str, Any], pictures: Sequence[Tensor]) -> dict[str, Any]:
        made = super().with_pixels(inputs, pictures)
        return made | {"pixel_values": channels_last(made["pixel_values"])}


class PaddleOCRVLAdapter(Qwen2_5VLAdapter):
    """PaddleOCR-VL: as Qwen2.5-VL, but patches [n, 3, p, p] lie in raster order and merge after the tower.

    Some cells alone can be encoded: the tower takes patches in any order with their positions, and the
    projector merges adjacent ones.
    """

    clips = False
    by_cells = False

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        side = self.model.config.vision_config.patch_size
        return to_pictures(inputs["pixel_values"], inputs["image_grid_thw"].tolist(), 1, side, 1)

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        layout, grid, unit = self.layout(inputs), inputs["image_grid_thw"], self.merge**2
        counts = [len(indices) for indices in keep]
        if counts == layout.counts:  # in the stock model's own order, for its own results to the last bit
            return replace(self.features(inputs), cells=[])
        inner, tower = self.model.base_model, self.tower
        cells = numbered_cells(layout, keep)
        rows = cells_in_raster(grid, self.merge).to(cells.device)[patch_rows(cells, unit)]
        ends = torch.tensor([0, *counts], device=cells.device).cumsum(0)  # of images, in kept cells
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

    def with_pixels(self, inputs: Mapping[str, Any], pictures: Sequence[Tensor]) -> dict[str, Any]:
        grid, patch = inputs["image_grid_thw"], self.model.config.vision_config.patch_size
        sizes = [(1, picture.shape[1] // patch, picture.shape[2] // patch) for picture in pictures]
        return {
            "pixel_values": torch.cat([_patches(picture, patch) for picture in pictures]),
            "image_grid_thw": torch.tensor(sizes, dtype=grid.dtype, device=grid.device),
        }


def _patches(picture: Tensor, patch: int) -> Tensor:
    """Return the patches [n, 3, p, p] of a picture, raster order."""
    blocks = picture.unfold(1, patch, patch).unfold(2, patch, patch)  # (3, h, w, p, p)
    return blocks.permute(1, 2, 0, 3, 4).flatten(0, 1)


def cells_in_raster(grid: Tensor, merge: int) -> Tensor:
    """Return raster numbers of the patches of all images, listed cell by cell: long [n]."""
    orders, start = [], 0
    for t, h, w in grid.tolist():
        numbered = start + torch.arange(t * h * w).view(t, h // merge, merge, w // merge, merge)
        orders.append(numbered.transpose(2, 3).flatten())  # (t, H, W, m, m): cell by cell
        start += t * h * w
    return torch.cat(orders)


def omni_positions(model: Any, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
    """Return positions of a prompt to an Omni thinker: [3, B, S], whole numbers as floats.

    A thinker's own rule fails where an image's tokens are missing behind its begin token. With images alone
    the rule is: the grid of each image starts at the end of the text before it. With sound, the thinker is
    asked. A ValueError where runs of image tokens don't have the images' lengths.
    """
    ids, grids = inputs["input_ids"], inputs.get("image_grid_thw")
    sound = inputs.get("feature_attention_mask")
    lengths = inputs.get("audio_feature_lengths") if sound is None else sound.sum(-1)
    if lengths is not None or grids is None:
        owner = model if hasattr(model, "get_rope_index") else model.base_model
        return owner.get_rope_index(
            ids, image_grid_thw=grids, attention_mask=attention_mask, audio_seqlens=lengths
        )[0]
    merge = model.config.vision_config.spatial_merge_size
    sizes = iter((grids[:, 1:] // merge).tolist())
    image = ids == model.config.image_token_id
    positions = torch.zeros(3, *ids.shape, device=ids.device)  # frame, row, column
    for row, attended in enumerate(attention_mask.bool()):
        columns = attended.nonzero().flatten()
        runs = image[row, columns].unique_consecutive(return_counts=True)
        parts: list[Tensor] = []
        start = 0
        for visual, count in zip(*(values.tolist() for values in runs), strict=True):
            while visual and count:  # images may stand side by side
                height, width = next(sizes, (0, 0))
                if not 0 < height * width <= count:
                    raise ValueError(f"{count} image tokens of the prompt are those of no image; {REMEDY}")
                places = torch.cartesian_prod(torch.arange(1), torch.arange(height), torch.arange(width)).T
                parts.append(places + start)
                start += max(height, width)
                count -= height * width
            if count:
                parts.append((start + torch.arange(count)).expand(3, -1))
                start += count
        positions[:, row, columns] = torch.cat(parts, 1).to(positions)
    return positions
