"""Families whose image is a grid of its own size, row by row, with or without tokens between the rows.

    Mistral, Apertus   pixel_values [n, 3, H, W] padded, image_sizes [n, 2]; a break token after each row
    Gemma 4            pixel_values [n, P, 3 * p * p] in [0, 1], image_position_ids [n, P, 2] as (x, y), or -1
    Kimi, Hunyuan      pixel_values [patches, 3, p, p] row by row, image_grid_thw [n, 3]
    Muse               pixel_values [patches, 2 * 3 * p * p] row by row, image_grid_thw [n, 3]

Tokens between rows are no cells and are always kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.vision_utils import (
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from arr_coc.families.generic import GridAdapter, patch_grids, unpadded
from arr_coc.families.qwen import cells_in_raster
from arr_coc.families.tiles import placeholder_runs
from arr_coc.seam.assembly import Layout, VisualFeatures
from arr_coc.seam.base import Encodes, FamilyAdapter, Grid
from arr_coc.seam.pixels import (
    coarse_views,
    kept_windows,
    numbered_cells,
    patch_rows,
    to_patches,
    to_pictures,
)


def cell_grids(inputs: Mapping[str, Any], merge: int) -> list[Grid]:
    """Return the grid (T, H, W) of each image's cells of merge x merge patches."""
    return [(t, h // merge, w // merge) for t, h, w in patch_grids(inputs)]


def patches_by_row(inputs: Mapping[str, Any], pictures: Sequence[Tensor], side: int) -> dict[str, Any]:
    """Pictures [3, h, w] as patches of `side` px, row by row: [patches, 3 * side**2], with their grids."""
    like = inputs["image_grid_thw"]
    sizes = [(1, picture.shape[1] // side, picture.shape[2] // side) for picture in pictures]
    return {
        "pixel_values": torch.cat([to_patches(picture, 1, side, 1) for picture in pictures]),
        "image_grid_thw": torch.tensor(sizes, dtype=like.dtype, device=like.device),
    }


class Mistral3Adapter(GridAdapter):
    """Mistral Small 3 and Large 4 (Pixtral): cells of merge x merge patches, a break token after each row.

    Patches don't overlap in the tower's first convolution and carry their positions, so `encode_cells` runs
    the tower on those of some cells; not where a model reads another layer of its tower than the last.
    """

    encodes: Encodes = "cells"

    def __init__(self, model: Any, processor: Any = None, **traits: Any) -> None:
        super().__init__(model, processor, **traits)
        if getattr(model.config, "vision_feature_layer", -1) != -1:
            self.encodes = "images"

    @property
    def merge(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.spatial_merge_size

    @property
    def patch(self) -> int:
        """Px along each side of a patch."""
        return self.model.config.vision_config.patch_size

    @property
    def tower(self) -> Any:
        return self.model.base_model.vision_tower

    @property
    def projector(self) -> Any:
        """The module that makes tokens of the tower's states [n, D], given the sizes of the pictures."""
        return self.model.base_model.multi_modal_projector

    def grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        side = self.patch * self.merge
        return [(1, int(h) // side, int(w) // side) for h, w in inputs["image_sizes"]]

    def encode(self, inputs: Mapping[str, Any]) -> Any:
        """Return the model's own output; a picture of one token goes in twice, since alone it loses a
        dimension.
        """
        sizes = inputs["image_sizes"]
        if len(sizes) != 1 or self.grids(inputs) != [(1, 1, 1)]:
            return super().encode(inputs)
        twice = {
            name: torch.cat([torch.as_tensor(inputs[name])] * 2) for name in ("pixel_values", "image_sizes")
        }
        output = super().encode({**inputs, **twice})
        output.pooler_output = list(output.pooler_output)[:1]
        return output

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        return unpadded(inputs["pixel_values"], inputs["image_sizes"])

    # ---- encoding some cells alone --------------------------------------------------------------------

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Runs the tower on the patches of the kept cells, image by image."""
        layout, counts = self.layout(inputs), [len(indices) for indices in keep]
        numbered_cells(layout, keep)  # refuses what are no cells
        if counts == layout.counts:  # all at once, for the stock model's own results
            return replace(self.features(inputs), cells=[])
        width = self.model.config.get_text_config().hidden_size
        encoded = []
        for picture, grid, cells in zip(self.patches(inputs), layout.grids, keep, strict=True):
            dtype = self.tower.patch_conv.weight.dtype
            none = picture.new_zeros(0, width, dtype=dtype)
            encoded.append(self._encoded(picture, grid, cells.to(picture.device)) if len(cells) else none)
        return VisualFeatures(encoded, [], layout.grids, [], BaseModelOutputWithPooling)

    @property
    def cell_px(self) -> int:
        return self.patch * self.merge

    def with_pixels(self, inputs: Mapping[str, Any], pictures: Sequence[Tensor]) -> dict[str, Any]:
        sizes = torch.tensor([picture.shape[1:] for picture in pictures])
        tall, wide = sizes.amax(0).tolist()
        padded = [F.pad(one, (0, wide - one.shape[2], 0, tall - one.shape[1])) for one in pictures]
        return {"pixel_values": torch.stack(padded), "image_sizes": sizes}  # [n, 3, tallest, widest]

    def _encoded(self, picture: Tensor, grid: Grid, cells: Tensor) -> Tensor:
        """Return the tokens [K, D] of some cells of a picture [3, h, w]."""
        m, p, (_, height, width) = self.merge, self.patch, grid
        tower, within = self.tower, torch.arange(m, device=cells.device)
        y = (cells // width * m)[:, None, None] + within[:, None].expand(m, m)
        x = (cells % width * m)[:, None, None] + within.expand(m, m)
        places = torch.stack([y.flatten(), x.flatten()], -1)  # patches cell by cell, (K * m * m, 2)
        blocks = picture[:, : height * m * p, : width * m * p].view(3, height * m, p, width * m, p)
        pixels = blocks.permute(1, 3, 0, 2, 4)[places[:, 0], places[:, 1]]  # (K * m * m, 3, p, p)
        embedded = tower.ln_pre(tower.patch_conv(pixels.to(tower.patch_conv.weight.dtype)).flatten(1)[None])
        positions = tower.patch_positional_embedding(embedded, places)
        hidden = tower.transformer(embedded, position_embeddings=positions).last_hidden_state[0]
        # To the projector the kept cells are a picture one cell wide, whose patches follow row by row.
        strip = [(m * len(cells) * p, m * p)]
        return self.projector(hidden, strip)


class LightOnOcrAdapter(Mistral3Adapter):
    """LightOnOCR: as Mistral Small 3, without tokens between rows."""

    refines = True
    encode = GridAdapter.encode

    @property
    def tower(self) -> Any:
        return self.model.base_model.vision_encoder

    @property
    def projector(self) -> Any:
        return self.model.base_model.vision_projection


class Gemma4Adapter(GridAdapter):
    """Gemma 4: a grid of 48-px cells, each the mean of 3x3 patches, which the tower takes with positions.

    So some cells alone can be encoded. An image has 70 to 1120 tokens (`max_soft_tokens` of the processor):
    encoding few of 1120 cells keeps small print at the price of a small image. The tower normalises, not the
    processor.
    """

    mean = (0.0, 0.0, 0.0)
    std = (1.0, 1.0, 1.0)
    encodes: Encodes = "cells"
    refines = True
    needed = ("image_position_ids",)

    @property
    def pool(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.vision_config.pooling_kernel_size

    @property
    def patch_px(self) -> int:
        """Px along each side of a patch."""
        return self.model.config.vision_config.patch_size

    def grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        most = inputs["image_position_ids"].amax(1).tolist()
        return [(1, (y + 1) // self.pool, (x + 1) // self.pool) for x, y in most]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        p = self.patch_px
        pictures = []
        for rows, (_, height, width) in zip(inputs["pixel_values"], self.grids(inputs), strict=True):
            h, w = height * self.pool, width * self.pool
            blocks = rows[: h * w].view(h, w, p, p, 3)  # row, column, y, x, colour; padding left out
            pictures.append(blocks.permute(4, 0, 2, 1, 3).reshape(3, h * p, w * p))
        return pictures

    # ---- encoding some cells alone --------------------------------------------------------------------

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Runs the tower on the patches of the kept cells, each at its place in the picture."""
        layout, counts = self.layout(inputs), [len(indices) for indices in keep]
        numbered_cells(layout, keep)  # refuses what are no cells
        if counts == layout.counts:  # padded as the processor pads, for the stock model's own results
            return replace(self.features(inputs), cells=[])
        chosen = [image for image, count in enumerate(counts) if count]
        rows = [self._rows(layout.grids[i], keep[i].to(inputs["pixel_values"].device)) for i in chosen]
        pixels = [inputs["pixel_values"][i][index] for i, index in zip(chosen, rows, strict=True)]
        places = [inputs["image_position_ids"][i][index] for i, index in zip(chosen, rows, strict=True)]
        padded = pad_sequence(places, batch_first=True, padding_value=-1)  # (n, P', 2)
        encoded = self._encoded(pad_sequence(pixels, batch_first=True), padded)
        tokens = iter(encoded.split([count for count in counts if count]))
        none = encoded.new_zeros(0, encoded.shape[1])
        parts = [next(tokens) if count else none for count in counts]
        return VisualFeatures(parts, [], layout.grids, [], BaseModelOutputWithPooling)

    @property
    def cell_px(self) -> int:
        return self.pool * self.patch_px

    def with_pixels(self, inputs: Mapping[str, Any], pictures: Sequence[Tensor]) -> dict[str, Any]:
        p, rows, places = self.patch_px, [], []
        for picture in pictures:
            h, w = (length // p for length in picture.shape[1:])
            # From (colour, row, y, column, x) to a patch a row, the colours of a pixel side by side.
            rows.append(picture.view(3, h, p, w, p).permute(1, 3, 2, 4, 0).reshape(h * w, -1))
            y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            places.append(torch.stack([x, y], -1).view(-1, 2).to(inputs["image_position_ids"]))
        return {
            "pixel_values": pad_sequence(rows, batch_first=True),
            "image_position_ids": pad_sequence(places, batch_first=True, padding_value=-1),
        }

    def _rows(self, grid: Grid, cells: Tensor) -> Tensor:
        """Return the patches of some cells, cell by cell: [K] -> long [K * k * k]."""
        k, width = self.pool, grid[2]
        within = torch.arange(k, device=cells.device)
        y = (cells // width * k)[:, None, None] + within[:, None]  # (K, k, 1)
        x = (cells % width * k)[:, None, None] + within  # (K, 1, k)
        return (y * width * k + x).flatten()

    def _encoded(self, pixels: Tensor, places: Tensor) -> Tensor:
        """Tokens [K of all images, D] from cells' patches [n, P, 3 * p * p] and `places` [n, P, 2]."""
        tower = self.model.base_model.vision_tower
        padding = (places == -1).all(-1)
        embedded = tower.patch_embedder(pixels, places, padding)
        hidden = tower.encoder(
            inputs_embeds=embedded, attention_mask=~padding, pixel_position_ids=places
        ).last_hidden_state
        pooled = self._pooled(tower, hidden, padding)
        return self.model.base_model.embed_vision(inputs_embeds=pooled.to(embedded.dtype))

    def _pooled(self, tower: Any, hidden: Tensor, padding: Tensor) -> Tensor:
        """Return the tower's tokens of patches that stand cell by cell: [K of all images, D]."""
        k, patches = self.pool, hidden.shape[1]
        # The pooler tells cells by positions: here those of a strip of cells side by side.
        number = torch.arange(patches, device=hidden.device)
        x = number // k**2 * k + number % k
        strip = torch.stack([x, number // k % k], -1).expand(len(hidden), -1, -1)
        strip = strip.masked_fill(padding[..., None], -1)
        pooled, valid = tower.pooler(hidden, strip, padding, output_length=patches // k**2)
        pooled = pooled[valid]
        if tower.config.standardize:
            pooled = (pooled - tower.std_bias.float()) * tower.std_scale.float()
        return pooled


class Gemma4UnifiedAdapter(Gemma4Adapter):
    """Gemma 4 without a vision tower: a cell is one patch, and depends on no other."""

    pool = 1

    @property
    def patch_px(self) -> int:
        return self.model.config.vision_config.model_patch_size

    def _encoded(self, pixels: Tensor, places: Tensor) -> Tensor:
        output = self.encode({"pixel_values": pixels, "image_position_ids": places})
        return torch.cat(list(output.pooler_output))


class KimiK25Adapter(GridAdapter):
    """Kimi K2.5 and K2.6: pictures of any size, every token a cell of merged patches.

    The tower interpolates positions over the whole picture, so it can't encode some cells alone.
    """

    @property
    def merge(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.vision_config.merge_kernel_size[0]

    def grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        return [(1, h // self.merge, w // self.merge) for _, h, w in inputs["image_grid_thw"].tolist()]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """Return the pictures that the image processor cut into patches, with its padding."""
        side = self.model.config.vision_config.patch_size
        grids = [(1, height, width) for _, height, width in inputs["image_grid_thw"].tolist()]
        return to_pictures(inputs["pixel_values"], grids, 1, side, 1)


class MuseAdapter(GridAdapter):
    """Muse Glimmer and Muse Spark: patches of two frames, which merge to cells behind the tower.

    The tower takes patches in any order with their positions, so some cells alone can be encoded, each in its
    own window of 32 x 32 patches.
    """

    encodes: Encodes = "cells"
    refines = True
    mean = (0.5, 0.5, 0.5)  # pixels in [-1, 1]
    std = (0.5, 0.5, 0.5)

    @property
    def merge(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.vision_config.merge_size

    @property
    def patch(self) -> int:
        """Px along each side of a patch."""
        return self.model.config.vision_config.patch_size

    @property
    def tower(self) -> Any:
        return self.model.base_model.vision_tower

    def grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        return cell_grids(inputs, self.merge)

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        first = inputs["pixel_values"][:, : 3 * self.patch**2]  # of two equal frames
        return to_pictures(first, inputs["image_grid_thw"].tolist(), 1, self.patch, 1)

    # ---- encoding some cells alone --------------------------------------------------------------------

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Runs the tower on the patches of the kept cells, each at its place and in its window."""
        layout, grid = self.layout(inputs), inputs["image_grid_thw"]
        counts = [len(indices) for indices in keep]
        cells = numbered_cells(layout, keep)
        if counts == layout.counts:  # in the stock model's own order, for its own results to the last bit
            return replace(self.features(inputs), cells=[])
        m, tower, embedder = self.merge, self.tower, self.tower.patch_embedder
        rows = cells_in_raster(grid, m).to(cells.device)[patch_rows(cells, m * m)]
        windows = get_vision_window_index(grid, 1, tower.window_size, tower.patch_size)
        index, ends = kept_windows(rows, *windows, 1)
        # The model gives a patch in row y and column x the place that the turned grid's patches have.
        places, weights = get_vision_interpolation_indices_and_weights(
            grid[:, [0, 2, 1]],
            num_grid_per_side=embedder.num_grid_per_side,
            mode=embedder.interpolation_mode,
            align_corners=embedder.interpolation_align_corners,
            spatial_merge_size=1,
            padding=embedder.interpolation_padding,
        )
        # To the projector the kept cells of an image are a picture one cell wide.
        strips = [(1, m * count, m) for count in counts if count]
        output = self.model.base_model.get_image_features(
            inputs["pixel_values"][rows],
            torch.tensor(strips, dtype=grid.dtype, device=grid.device),
            position_ids=get_vision_position_ids(grid, 1)[rows],
            window_index=index,
            cu_window_seqlens=ends,
            interp_indices=places[rows],
            interp_weights=weights[rows],
            return_dict=True,
        )
        tokens = torch.cat(list(output.pooler_output)).split(counts)
        return VisualFeatures(list(tokens), [], layout.grids, [], type(output))

    @property
    def cell_px(self) -> int:
        return self.merge * self.patch

    def with_pixels(self, inputs: Mapping[str, Any], pictures: Sequence[Tensor]) -> dict[str, Any]:
        made = patches_by_row(inputs, pictures, self.patch)
        frames = inputs["pixel_values"].shape[1] // (3 * self.patch**2)
        return made | {"pixel_values": made["pixel_values"].repeat(1, frames)}


class HYV4VLAdapter(FamilyAdapter):
    """Hunyuan 4 VL: cells of merged patches, and a newline token, made by the encoder, after each row.

    The tower's attention has no positions: each patch carries its own, interpolated from a learned grid. So
    `encode_cells` runs the tower on the patches of some cells. Newlines, which depend on no pixel, are always
    kept. Each token of the language model attends to a selection of the earlier kept ones.

    `ends`: tokens of the encoder at each end of a picture.
    """

    encodes: Encodes = "cells"
    ends: int = 0

    @property
    def merge(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.vision_config.spatial_merge_size

    @property
    def tower(self) -> Any:
        return self.model.base_model.vision_tower

    def grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        return cell_grids(inputs, self.merge)

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """Return the tokens of each image, from the grids: some releases of transformers divide them
        otherwise.
        """
        return [t * h * (w + 1) + 2 * self.ends for t, h, w in self.grids(inputs)]

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        layout: list[tuple[Grid, Tensor]] = []
        for (t, h, w), count in zip(self.grids(inputs), counts, strict=True):
            rows = torch.arange(self.ends, count - self.ends).view(t, h, w + 1)
            layout.append(((t, h, w), rows[..., :w].flatten()))  # the last of each row is a newline
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        side = self.model.config.vision_config.patch_size
        return to_pictures(inputs["pixel_values"], inputs["image_grid_thw"].tolist(), 1, side, 1)

    # ---- encoding some cells alone --------------------------------------------------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        counts = list(self.token_counts(inputs, ()))
        layout, device = self.cell_layout(inputs, counts), inputs["image_grid_thw"].device
        return Layout(counts, [grid for grid, _ in layout], [cells.to(device) for _, cells in layout])

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Runs the tower on the patches of the kept cells, each at its place in the picture."""
        layout = self.layout(inputs)
        cells = numbered_cells(layout, keep)
        if [len(indices) for indices in keep] == layout.sizes:  # the stock model's own, to the last bit
            return replace(self.features(inputs), cells=[])
        return self._put_together(layout, keep, self._encoded(inputs, keep, cells))

    def other_tokens(self, inputs: Mapping[str, Any], layout: Layout) -> VisualFeatures:
        """Return the newlines, and the tokens at the ends of the pictures."""
        weight = self.tower.embeddings.patch_embedding.weight  # (D, 3, p, p)
        blank = weight.new_zeros(1, self.merge**2, len(weight))
        return self._put_together(layout, [cells[:0] for cells in layout.cells], blank)

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        patch = self.model.config.vision_config.patch_size
        views = coarse_views(self.patches(inputs), self.grids(inputs), cells, self.merge * patch)
        return patches_by_row(inputs, views, patch)

    def _encoded(self, inputs: Mapping[str, Any], keep: Sequence[Tensor], cells: Tensor) -> Tensor:
        """Return the tower's states [1, K * m * m, D] of kept cells [K], numbered over all images, cell by
        cell.
        """
        grid, unit, embeddings = inputs["image_grid_thw"], self.merge**2, self.tower.embeddings
        rows = cells_in_raster(grid, self.merge).to(cells.device)[patch_rows(cells, unit)]
        side, dtype = embeddings.patch_size, embeddings.patch_embedding.weight.dtype
        pixels = inputs["pixel_values"][rows].view(len(rows), -1, side, side)
        embedded = embeddings.patch_embedding(pixels.to(dtype)).flatten(1)
        places = [
            embeddings.interpolate_pos_encoding(embedded, h, w)[0].repeat(t, 1) for t, h, w in grid.tolist()
        ]
        hidden = (embedded + torch.cat(places)[rows])[None]
        counts = torch.tensor([0, *(len(indices) * unit for indices in keep)], device=hidden.device)
        segments = counts.cumsum(0).unique_consecutive().int()  # each image's patches attend to one another
        for layer in self.tower.layers:
            hidden = layer(hidden, attention_mask=None, cu_seqlens=segments)
        return hidden

    def _put_together(self, layout: Layout, keep: Sequence[Tensor], hidden: Tensor) -> VisualFeatures:
        """Return the tokens of kept cells, of their states [1, K * m * m, D], and of what is no cell; K at
        least 1.

        Where nothing is kept, the states stand for no cell, and are only needed for the other tokens.
        """
        m = self.merge
        # To the merger the cells are a picture one cell wide, with a newline after each.
        strip = self.tower.patch_merger(hidden, size=(hidden.shape[1] // m, m))[0]
        inside = strip[self.ends : len(strip) - self.ends].unflatten(0, (-1, 2))
        encoded, newline, tokens, start = inside[:, 0], inside[0, 1], [], 0
        for cells, kept in zip(layout.cells, layout.tokens_to_keep(keep), strict=True):
            is_cell = torch.isin(kept, cells).to(strip.device)
            image, count = newline.repeat(len(kept), 1), int(is_cell.sum())
            image[is_cell] = encoded[start : start + count]
            if self.ends:
                image[0], image[-1] = strip[0], strip[-1]
            tokens.append(image)
            start += count
        return VisualFeatures(tokens, [], layout.grids, [], BaseModelOutputWithPooling, self._packed)

    @cached_property
    def _packed(self) -> bool:
        """Whether the model takes all images' tokens as one tensor: in 5.18 it didn't divide its own."""
        return "split" not in inspect.getsource(inspect.unwrap(self.model.base_model.get_image_features))


class HunyuanVLAdapter(HYV4VLAdapter):
    """Hunyuan VL and HunyuanOCR: as Hunyuan 4 VL, with a begin and an end token around each picture.

    Positions have as many rows as the rotary embedding has axes, three or four. One numbers the pictures; the
    model numbers them through a batch, here each prompt is numbered as if it were alone.
    """

    ends = 1

    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Position ids of the whole prompts, computed by the model itself, row by row: [axes, B, S]."""
        ids, kinds = inputs["input_ids"], inputs.get("mm_token_type_ids")
        kinds = self.token_kinds(inputs) if kinds is None else kinds
        rule, grids = self.model.model.get_rope_index, inputs.get("image_grid_thw")
        rows, first = [], 0
        for row in range(len(ids)):
            one = slice(row, row + 1)
            last = first + len(placeholder_runs(kinds[one] == 1))
            own = None if grids is None else grids[first:last]
            rows.append(rule(ids[one], kinds[one], own, attention_mask=attention_mask[one])[0])
            first = last
        return torch.cat(rows, dim=1)  # over the batch B


class Apertus1p5Adapter(GridAdapter):
    """Apertus 1.5: pictures as codes of a visual vocabulary, 16 x 16 px each, a token between their rows.

    A picture of 1,400 px a side has 7,569 codes. The encoder is convolutional, so it can't encode some cells
    alone. The image processor pads to the largest picture of a call.
    """

    def grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        side = self.model.config.vision_config.spatial_scale_factor
        return [(1, height // side, width // side) for height, width in inputs["image_sizes"].tolist()]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        return unpadded(inputs["pixel_values"], inputs["image_sizes"])
