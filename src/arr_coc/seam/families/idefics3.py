"""Idefics3 and SmolVLM: square tiles of a picture between row and column tokens, then a view of the whole.

The cells are those of all tiles in one raster; the view of the whole, and every token that names a tile,
always stay. A picture that was not split has the cells of its one view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.families.tiles import arranged, joined, raster


class Idefics3Adapter(FamilyAdapter):
    """Idefics3 and SmolVLM."""

    model_types = ("idefics3", "smolvlm")
    title = "Idefics3, SmolVLM"
    remark = "the view of the whole, behind the tiles, always stays"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    @property
    def side(self) -> int:
        """Cells along each side of a tile."""
        vision = self.model.config.vision_config
        return vision.image_size // vision.patch_size // self.model.config.scale_factor

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """The tokens of each image's tiles, however many images the encoder took together."""
        return [number * self.side**2 for number in self._views(inputs)]

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The raster of all tiles, the view of the whole left out."""
        layout = []
        for (rows, columns), _ in self._tiles(inputs):
            cells = raster(rows, columns, self.side)
            layout.append(((1, rows * self.side, columns * self.side), cells))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The tiles joined."""
        return [joined(tiles, *shape) for shape, tiles in self._tiles(inputs)]

    def _views(self, inputs: Mapping[str, Any]) -> list[int]:
        """How many tiles and views of the whole each image has.

        Tiles stand apart in the prompt, each behind a token that says which it is. The last of an image is
        the view of the whole, so the last of a prompt tells by which token such views are announced.
        """
        numbers = []
        for ids in inputs["input_ids"]:
            runs = (ids == self.image_token_id).int().diff(prepend=ids.new_zeros(1)) == 1
            announced = ids[runs.nonzero().flatten() - 1]
            ends = (announced == announced[-1:]).nonzero().flatten() + 1
            numbers += ends.diff(prepend=ends.new_zeros(1)).tolist()
        return numbers

    def _tiles(self, inputs: Mapping[str, Any]) -> list[tuple[tuple[int, int], Tensor]]:
        """Per image the rows and columns of its tiles, and the tiles."""
        pixels = inputs["pixel_values"].flatten(0, 1)  # rows of a batch are filled up with black views
        pixels = pixels[pixels.flatten(1).any(1)]
        return arranged(pixels, self._views(inputs))
