"""Mistral Small 3 and Large 4 (Pixtral): as many cells as the picture is large, a break token after each row.

The break tokens are words of the prompt, so they always stay. The tower cuts a picture into patches by a
convolution that touches each patch once, and tells them apart by positions: so some cells alone can be
encoded, each at its place, by the tower's own parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutputWithPooling

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.features import Layout
from arr_coc.seam.partial import numbered_cells
from arr_coc.seam.patching import coarse_views


class Mistral3Adapter(FamilyAdapter):
    """Both. Where one reads another layer of its tower than the last, all cells are encoded."""

    model_types = ("mistral3", "mistral_large4")
    title = "Mistral Small 3, Large 4"
    remark = "the tokens between rows always stay; Large 4 picks what it reads, of what is kept"
    sparse = True

    def __init__(self, model: Any, processor: Any = None) -> None:
        super().__init__(model, processor)
        self.sparse = model.config.vision_feature_layer == -1

    @property
    def merge(self) -> int:
        """Patches along each side of a cell."""
        return self.model.config.spatial_merge_size

    @property
    def patch(self) -> int:
        """Px along each side of a patch."""
        return self.model.config.vision_config.patch_size

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Every token is a cell: the picture's size in merged patches."""
        return list(zip(self._grids(inputs), map(torch.arange, counts), strict=True))

    def encode(self, inputs: Mapping[str, Any]) -> Any:
        """The model's own output; a picture of one token goes in twice, since alone it loses a dimension."""
        sizes = inputs["image_sizes"]
        if len(sizes) != 1 or self._grids(inputs) != [(1, 1, 1)]:
            return super().encode(inputs)
        twice = {
            name: torch.cat([torch.as_tensor(inputs[name])] * 2) for name in ("pixel_values", "image_sizes")
        }
        output = super().encode({**inputs, **twice})
        output.pooler_output = list(output.pooler_output)[:1]
        return output

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pictures, without the padding to the size of the largest in the call."""
        sizes = [(int(h), int(w)) for h, w in inputs["image_sizes"]]
        return [picture[:, :h, :w] for picture, (h, w) in zip(inputs["pixel_values"], sizes, strict=True)]

    # ---- encoding some cells alone --------------------------------------------------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        """Computed from `image_sizes` alone, since every token is a cell."""
        if not self.sparse:
            return super().layout(inputs)
        return Layout.of_grids(self._grids(inputs), inputs["pixel_values"].device)

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Run the tower's parts on the patches of the kept cells, image by image."""
        layout, counts = self.layout(inputs), [len(indices) for indices in keep]
        numbered_cells(layout, keep)  # refuses what are no cells
        if counts == layout.counts:  # all at once, for the stock model's own results
            return replace(self.features(inputs), cells=[])
        width = self.model.config.get_text_config().hidden_size
        encoded = []
        for picture, grid, cells in zip(self.patches(inputs), layout.grids, keep, strict=True):
            dtype = self.model.base_model.vision_tower.patch_conv.weight.dtype
            none = picture.new_zeros(0, width, dtype=dtype)
            encoded.append(self._encoded(picture, grid, cells.to(picture.device)) if len(cells) else none)
        return VisualFeatures(encoded, [], layout.grids, [], BaseModelOutputWithPooling)

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """The pictures scaled down, padded to one size."""
        if not self.sparse:
            return super().coarse(inputs, cells)
        side, grids = self.patch * self.merge, self._grids(inputs)
        pictures = [
            picture[:, : height * side, : width * side]
            for picture, (_, height, width) in zip(self.patches(inputs), grids, strict=True)
        ]
        views = coarse_views(pictures, grids, cells, side)
        sizes = torch.tensor([view.shape[1:] for view in views])
        tall, wide = sizes.amax(0).tolist()
        padded = [F.pad(view, (0, wide - view.shape[2], 0, tall - view.shape[1])) for view in views]
        return {"pixel_values": torch.stack(padded), "image_sizes": sizes}

    def _grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        """The grid (1, H, W) of each image's cells."""
        side = self.patch * self.merge
        return [(1, int(h) // side, int(w) // side) for h, w in inputs["image_sizes"]]

    def _encoded(self, picture: Tensor, grid: Grid, cells: Tensor) -> Tensor:
        """The tokens [K, D] of some cells of a picture [3, h, w]."""
        m, p, (_, height, width) = self.merge, self.patch, grid
        tower, within = self.model.base_model.vision_tower, torch.arange(m, device=cells.device)
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
        return self.model.base_model.multi_modal_projector(hidden, strip)
