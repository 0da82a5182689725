"""Mistral Small 3 (Pixtral): as many cells as the picture is large, with a break token after each row.

The break tokens are words of the prompt, so they always stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures


class Mistral3Adapter(FamilyAdapter):
    """Mistral Small 3. Its tower cuts pictures into patches itself and takes whole ones only."""

    model_types = ("mistral3",)
    title = "Mistral Small 3"
    remark = "the tokens between rows always stay"
    by_cells = False

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Every token is a cell: the picture's size in merged patches."""
        config = self.model.config
        cell = config.vision_config.patch_size * config.spatial_merge_size
        grids = [(1, int(h) // cell, int(w) // cell) for h, w in inputs["image_sizes"]]
        return list(zip(grids, map(torch.arange, counts), strict=True))

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pictures, without the padding to the size of the largest in the call."""
        sizes = [(int(h), int(w)) for h, w in inputs["image_sizes"]]
        return [picture[:, :h, :w] for picture, (h, w) in zip(inputs["pixel_values"], sizes, strict=True)]
