"""The generic adapter: a family that nobody registered, whose images are single pictures, each with a grid.

Where the processor gives patches and their grids, as Qwen's does, cells are blocks of patches. Else the grid
is the one of so many cells that is nearest to the picture's shape. Whether the rest fits is not known but
tried: `self_check` runs the model before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.families.tiles import placeholder_runs
from arr_coc.seam.assembly import VisualFeatures
from arr_coc.seam.base import FamilyAdapter, Grid
from arr_coc.seam.pixels import to_pictures

STRETCH = 1.25
"""How far the shape of a grid may be from the shape of its picture: a ratio of ratios."""


class GenericAdapter(FamilyAdapter):
    """A family without an adapter of its own."""

    model_types = ()
    title = "any other"
    remark = "single pictures, if the check at loading passes"

    @property
    def merge(self) -> int:
        """Patches along each side of a cell, where the processor gives patches."""
        pictures = getattr(self.processor, "image_processor", None)
        merge = getattr(pictures, "merge_size", None)
        return merge or getattr(self.model.config.vision_config, "spatial_merge_size", 1)

    def encode(self, inputs: Mapping[str, Any]) -> Any:
        """The base model's own output.

        Raises:
            ValueError: it holds no tokens of the prompt, as Llama 4's, which the model projects itself.
        """
        output = super().encode(inputs)
        if getattr(output, "pooler_output", None) is None:
            raise ValueError("its images are encoded to something other than tokens of the prompt")
        return output

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """As the encoder returns them, or as many placeholders as follow each other."""
        pictures = len(_grids(inputs) or self.patches(inputs))
        if len(lengths) == pictures:
            return lengths
        runs = placeholder_runs(inputs["input_ids"] == self.image_token_id)
        if len(runs) % pictures:
            raise ValueError(f"{len(runs)} runs of placeholders can't be shared among {pictures} pictures")
        rows = len(runs) // pictures
        return [sum(runs[i : i + rows]) for i in range(0, len(runs), rows)]

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The grid of blocks of patches, or that which the picture's shape allows for so many cells."""
        layout: list[tuple[Grid, Tensor]] = []
        if grids := _grids(inputs):
            for (t, h, w), count in zip(grids, counts, strict=True):
                grid = (t, h // self.merge, w // self.merge)
                if t * grid[1] * grid[2] != count:
                    raise ValueError(f"{count} cells are not the {grid[1]} x {grid[2]} blocks of patches")
                layout.append((grid, torch.arange(count)))
            return layout
        for picture, count in zip(self.patches(inputs), counts, strict=True):
            height, width = nearest_grid(count, picture.shape[1] / picture.shape[2])
            layout.append(((1, height, width), torch.arange(count)))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pixels of each picture, put together from its patches, or without padding to a common size.

        Raises:
            ValueError: pixels that are no pictures of three channels.
        """
        pixels = inputs["pixel_values"]
        if grids := _grids(inputs):
            side = self.model.config.vision_config.patch_size
            return to_pictures(pixels, grids, self.merge, side, pixels[0].numel() // (3 * side**2))
        if isinstance(pixels, Tensor) and pixels.ndim == 5:
            pixels = pixels.flatten(0, 1)
        if any(picture.ndim != 3 or len(picture) != 3 for picture in pixels):
            shape = tuple(pixels.shape) if isinstance(pixels, Tensor) else [tuple(p.shape) for p in pixels]
            raise ValueError(f"pixel_values {shape} are no pictures [n, 3, height, width]")
        sizes = inputs.get("image_sizes")
        if sizes is None:
            return list(pixels)
        return [picture[:, : int(h), : int(w)] for picture, (h, w) in zip(pixels, sizes, strict=True)]


def _grids(inputs: Mapping[str, Any]) -> list[Grid]:
    """The grid of patches (t, h, w) of each picture; [] where the processor gives none."""
    grids = inputs.get("image_grid_thw")
    return [] if grids is None else [(t, h, w) for t, h, w in grids.tolist()]


def nearest_grid(count: int, ratio: float) -> tuple[int, int]:
    """The grid (H, W) of `count` cells whose shape is nearest to a picture's.

    Args:
        count: cells, at least 1.
        ratio: height over width of the picture.

    Raises:
        ValueError: no grid of so many cells is near.
    """

    def stretch(rows: int) -> float:
        shape = rows * rows / count / ratio
        return max(shape, 1 / shape)

    rows = min((rows for rows in range(1, count + 1) if count % rows == 0), key=stretch)
    if stretch(rows) > STRETCH:
        raise ValueError(f"{count} cells make no grid in the shape of a picture of {ratio:.3g} to 1")
    return rows, count // rows
