"""Ovis2: a view of the whole, then square tiles of the picture; a picture that is not cut has the one view.

Tokens around the views are words of the prompt whose embeddings the encoder gives with its features. They
and the view of the whole always stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from arr_coc.families.tiles import arrangement, joined, placeholder_groups, raster
from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.compaction import image_spans
from arr_coc.seam.misfits import REMEDY


class Ovis2Adapter(FamilyAdapter):
    """Ovis2, in transformers' own format."""

    model_types = ("ovis2",)
    title = "Ovis2"
    remark = "the view of the whole, ahead of the tiles, always stays"

    @property
    def side(self) -> int:
        """Cells along each side of a view."""
        vision = self.model.config.vision_config
        return -(-(vision.image_size // vision.patch_size) // vision.hidden_stride)

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """The tokens of each image's views: their placeholders stand a single token apart."""
        return placeholder_groups(inputs["input_ids"] == self.image_token_id)

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int]:
        """As `token_counts`.

        Raises:
            ValueError: the prompt's placeholders are not those of the views.
        """
        counts, unit = self.token_counts(inputs, ()), self.side**2
        image_spans(inputs["input_ids"] == self.image_token_id, [unit] * len(inputs["pixel_values"]))
        if any(count % unit for count in counts):
            raise ValueError(f"the prompt has images of {counts} tokens, and a view has {unit}; {REMEDY}")
        return counts

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The raster of all tiles, or of the one view."""
        side, layout = self.side, []
        for tiles, (rows, columns) in self._tiles(inputs, counts):
            cells = raster(rows, columns, side) + (side**2 if len(tiles) > 1 else 0)
            layout.append(((1, rows * side, columns * side), cells))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The tiles joined."""
        counts = self.token_counts(inputs, ())
        return [joined(tiles, *shape) for tiles, shape in self._tiles(inputs, counts)]

    def _tiles(
        self, inputs: Mapping[str, Any], counts: Sequence[int]
    ) -> list[tuple[Tensor, tuple[int, int]]]:
        """Per image its tiles [n, 3, s, s], or its one view, and their rows and columns."""
        views = inputs["pixel_values"].split([count // self.side**2 for count in counts])
        return [(own[1:], arrangement(own[1:], own[0])) if len(own) > 1 else (own, (1, 1)) for own in views]
