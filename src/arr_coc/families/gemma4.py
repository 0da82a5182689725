"""Gemma 4: a grid of 48-px cells, each the mean of 3x3 patches; the tower takes patches with their positions.

So some cells alone can be encoded: their patches, at their positions in the whole picture, and a mean over
those of each cell. Gemma 4 reads an image in 70 to 1120 tokens as its processor is told
(`max_soft_tokens`): encoding few of 1120 cells keeps small print at the price of a small image.

Pixels: `pixel_values` [n, P, 3 * p * p] in [0, 1], `image_position_ids` [n, P, 2] as (x, y), -1 for padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers.modeling_outputs import BaseModelOutputWithPooling

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.features import Layout
from arr_coc.seam.partial import numbered_cells
from arr_coc.seam.patching import coarse_views


class Gemma4Adapter(FamilyAdapter):
    """Gemma 4 with a vision tower. Its processor doesn't normalise; the tower does."""

    model_types = ("gemma4",)
    title = "Gemma 4"
    remark = "dropping equals masking while the prompt fits the attention window"
    mean = (0.0, 0.0, 0.0)
    std = (1.0, 1.0, 1.0)
    sparse = True
    needed = ("image_position_ids",)

    @property
    def pool(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.vision_config.pooling_kernel_size

    @property
    def patch_px(self) -> int:
        """Px along each side of a patch."""
        return self.model.config.vision_config.patch_size

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Every token is a cell."""
        return list(zip(self._grids(inputs), map(torch.arange, counts), strict=True))

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pictures that the image processor cut into patches."""
        p = self.patch_px
        pictures = []
        for rows, (_, height, width) in zip(inputs["pixel_values"], self._grids(inputs), strict=True):
            h, w = height * self.pool, width * self.pool
            blocks = rows[: h * w].view(h, w, p, p, 3)
            pictures.append(blocks.permute(4, 0, 2, 1, 3).reshape(3, h * p, w * p))
        return pictures

    # ---- encoding some cells alone --------------------------------------------------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        """Computed from the positions of the patches alone."""
        return Layout.of_grids(self._grids(inputs), inputs["image_position_ids"].device)

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Run the tower on the patches of the kept cells, each at its place in the picture."""
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

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """The pictures scaled down and cut into patches again."""
        p, k = self.patch_px, self.pool
        rows, places = [], []
        for picture in coarse_views(self.patches(inputs), self._grids(inputs), cells, k * p):
            h, w = (length // p for length in picture.shape[1:])
            rows.append(picture.view(3, h, p, w, p).permute(1, 3, 2, 4, 0).reshape(h * w, -1))
            y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            places.append(torch.stack([x, y], -1).view(-1, 2).to(inputs["image_position_ids"]))
        return {
            "pixel_values": pad_sequence(rows, batch_first=True),
            "image_position_ids": pad_sequence(places, batch_first=True, padding_value=-1),
        }

    def _grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        """The grid (1, H, W) of each image's cells."""
        most = inputs["image_position_ids"].amax(1).tolist()
        return [(1, (y + 1) // self.pool, (x + 1) // self.pool) for x, y in most]

    def _rows(self, grid: Grid, cells: Tensor) -> Tensor:
        """The patches of some cells, cell by cell: [K] -> long [K * k * k]."""
        k, width = self.pool, grid[2]
        within = torch.arange(k, device=cells.device)
        y = (cells // width * k)[:, None, None] + within[:, None]  # (K, k, 1)
        x = (cells % width * k)[:, None, None] + within  # (K, 1, k)
        return (y * width * k + x).flatten()

    def _encoded(self, pixels: Tensor, places: Tensor) -> Tensor:
        """The tokens [K of all images, D] of whole cells, whose patches stand cell by cell.

        Args:
            pixels: [n, P, 3 * p * p].
            places: [n, P, 2], -1 for padding.
        """
        tower = self.model.base_model.vision_tower
        padding = (places == -1).all(-1)
        embedded = tower.patch_embedder(pixels, places, padding)
        hidden = tower.encoder(
            inputs_embeds=embedded, attention_mask=~padding, pixel_position_ids=places
        ).last_hidden_state
        pooled = self._pooled(tower, hidden, padding)
        return self.model.base_model.embed_vision(inputs_embeds=pooled.to(embedded.dtype))

    def _pooled(self, tower: Any, hidden: Tensor, padding: Tensor) -> Tensor:
        """What the tower makes of the patches of kept cells, which stand cell by cell: [K of all images, D].

        The pooler tells cells by positions: here those of a strip of cells side by side.
        """
        k, patches = self.pool, hidden.shape[1]
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

    model_types = ("gemma4_unified",)
    title = "Gemma 4 Unified"
    pool = 1

    @property
    def patch_px(self) -> int:
        """Px along each side of a cell."""
        return self.model.config.vision_config.model_patch_size

    def _encoded(self, pixels: Tensor, places: Tensor) -> Tensor:
        """As the model embeds patches."""
        output = self.encode({"pixel_values": pixels, "image_position_ids": places})
        return torch.cat(list(output.pooler_output))
