"""LFM2-VL: square tiles of a large picture, then a view of the whole in its own shape; else one view.

Most layers of its language model are short convolutions over the tokens that are left: they mix neighbours,
and with some tokens dropped these are others. With all tokens kept, results are the stock model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from arr_coc.families.tiles import arrangement, joined, placeholder_groups, raster
from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.compaction import image_spans
from arr_coc.seam.misfits import REMEDY
from arr_coc.seam.patching import to_picture


class Lfm2VLAdapter(FamilyAdapter):
    """LFM2-VL. A token names each tile; tokens say where an image begins and ends."""

    model_types = ("lfm2_vl",)
    recurrent = True
    title = "LFM2-VL"
    remark = "convolutions have no masked equivalent of a dropped token; the view of the whole always stays"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """The tokens of each image's views: their placeholders stand a single token apart."""
        return placeholder_groups(inputs["input_ids"] == self.image_token_id)

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int]:
        """As `token_counts`.

        Raises:
            ValueError: the prompt's placeholders are not those of the views.
        """
        unit = self.model.config.downsample_factor**2
        tokens = [height * width // unit for height, width in inputs["spatial_shapes"].tolist()]
        image_spans(inputs["input_ids"] == self.image_token_id, tokens)
        counts = self.token_counts(inputs, ())
        ends = {*accumulate(tokens)}
        if not ends.issuperset(accumulate(counts)):
            raise ValueError(f"the prompt has images of {counts} tokens and views of {tokens}; {REMEDY}")
        return counts

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The raster of all tiles, or of the one view."""
        factor, layout = self.model.config.downsample_factor, []
        for views, (rows, columns) in self._images(inputs, counts):
            height, width = (side // (factor * self._patch) for side in views[0].shape[1:])
            if height == width:
                cells = raster(rows, columns, height)
            else:
                cells = torch.arange(height * width)
            layout.append(((1, rows * height, columns * width), cells))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The tiles joined, or the one view."""
        counts = self.token_counts(inputs, ())
        return [
            joined(torch.stack(views[: rows * columns]), rows, columns) if len(views) > 1 else views[0]
            for views, (rows, columns) in self._images(inputs, counts)
        ]

    @property
    def _patch(self) -> int:
        return self.model.config.vision_config.patch_size

    def _images(
        self, inputs: Mapping[str, Any], counts: Sequence[int]
    ) -> list[tuple[list[Tensor], tuple[int, int]]]:
        """Per image its views [3, h, w], and the rows and columns of its tiles."""
        factor, shapes = self.model.config.downsample_factor, inputs["spatial_shapes"].tolist()
        pictures = iter(
            (to_picture(_channels_first(rows[: h * w]), (1, h, w), 1, self._patch, 1), h * w // factor**2)
            for rows, (h, w) in zip(inputs["pixel_values"], shapes, strict=True)
        )
        images = []
        for count in counts:
            views: list[Tensor] = []
            while count > 0:
                view, tokens = next(pictures)
                views.append(view)
                count -= tokens
            shape = arrangement(torch.stack(views[:-1]), views[-1]) if len(views) > 1 else (1, 1)
            images.append((views, shape))
        return images


def _channels_first(rows: Tensor) -> Tensor:
    """Patches with the colours of a pixel side by side, as patches of three planes: [n, p * p * 3]."""
    return rows.unflatten(1, (-1, 3)).transpose(1, 2).flatten(1)
