"""InternVL: square tiles of a picture, then a small view of the whole, between one start and one end token.

The cells are those of all tiles in one raster; the view of the whole always stays. A picture that fits one
tile has no such view, and the cells are those of the tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.families.tiles import arranged, joined, placeholder_runs, raster


class InternVLAdapter(FamilyAdapter):
    """InternVL 2.5, 3 and 3.5 in transformers' own format."""

    model_types = ("internvl",)
    title = "InternVL"
    remark = "the view of the whole, behind the tiles, always stays"
    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """The lengths of the prompt's runs of placeholders: the tiles of an image follow each other."""
        return placeholder_runs(inputs["input_ids"] == self.image_token_id)

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The raster of all tiles, the view of the whole left out."""
        side = math.isqrt(sum(counts) // len(inputs["pixel_values"]))
        return [
            ((1, rows * side, columns * side), raster(rows, columns, side))
            for (rows, columns), _ in self._tiles(inputs)
        ]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The tiles joined."""
        return [joined(tiles, *shape) for shape, tiles in self._tiles(inputs)]

    def _tiles(self, inputs: Mapping[str, Any]) -> list[tuple[tuple[int, int], Tensor]]:
        """Per image the rows and columns of its tiles, and the tiles."""
        views, counts = inputs["pixel_values"], placeholder_runs(inputs["input_ids"] == self.image_token_id)
        length = sum(counts) // len(views)  # tokens of a tile
        return arranged(views, [count // length for count in counts])
