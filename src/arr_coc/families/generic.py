"""Families whose images are single pictures, each with one grid: the layout of any model that has no other.

    pixel_values [patches, 3 * t * p * p], image_grid_thw [n, 3]    cells are blocks of merge x merge patches
    pixel_values [n, 3, h, w]                                       cells are the grid nearest to h : w

A model type without a row in the table gets this adapter too, if it passes `self_check`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from PIL.Image import Image, Resampling
from torch import Tensor

from arr_coc.families.tiles import placeholder_runs
from arr_coc.files.pixels import image_pixels, same_picture
from arr_coc.seam.assembly import Layout, VisualFeatures
from arr_coc.seam.base import FamilyAdapter, Grid
from arr_coc.seam.pixels import coarse_views, to_pictures
from arr_coc.seam.prompt import TemplateMarkers

MAX_STRETCH = 1.25  # ratio of a grid's aspect ratio to its picture's
POSITIONS_AS_COLUMNS = "minimax_m3_sparse"  # layers that index columns by positions
# setting of a language model that ignores positions and has a learned bias for each distance in columns
REACH_IN_COLUMNS = "rel_extent"


class GridAdapter(FamilyAdapter):
    """Base class of families whose every token is a cell; a family defines the grid of each image.

    `refines`: some cells of its pictures can be read at a finer scale than the processor's.
    """

    refines: bool = False

    @abstractmethod
    def grids(self, inputs: Mapping[str, Any]) -> list[Grid]:
        """Return the grid (T, H, W) of each image's cells."""

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        return list(zip(self.grids(inputs), map(torch.arange, counts), strict=True))

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        if self.encodes != "cells":
            return super().layout(inputs)
        return Layout.of_grids(self.grids(inputs), inputs["pixel_values"].device)

    # ---- the pictures of a call at other scales

    @property
    def cell_px(self) -> int:
        raise self._not_sparse()

    def with_pixels(self, inputs: Mapping[str, Any], pictures: Sequence[Tensor]) -> dict[str, Any]:
        """Return what the image processor makes of pictures [3, h, w], normalised, of whole cells."""
        raise self._not_sparse()

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        if self.encodes != "cells":
            return super().coarse(inputs, cells)
        side, grids = self.cell_px, self.grids(inputs)
        pictures = [  # without a rim that is no whole cell
            picture[:, : height * side, : width * side]
            for picture, (_, height, width) in zip(self.patches(inputs), grids, strict=True)
        ]
        return self.with_pixels(inputs, coarse_views(pictures, grids, cells, side))

    def lacks_finer(self, inputs: Mapping[str, Any], pictures: Sequence[Image] | None) -> str | None:
        if self.encodes != "cells" or not self.refines:
            return super().lacks_finer(inputs, pictures)
        if pictures is None:
            return "cells are magnified from pictures as you have them: pass pictures=[...]"
        for number, pair in enumerate(zip(pictures, self.images(inputs), strict=True)):
            if not same_picture(image_pixels(pair[0], pair[1].device)[0], pair[1]):
                return f"picture {number} does not show what the model was given of image {number}"
        return None

    def finer(
        self, inputs: Mapping[str, Any], pictures: Sequence[Image], grids: Sequence[Grid]
    ) -> dict[str, Any]:
        own = self.patches(inputs)
        normalise = self.normalising([picture.float() for picture in own])
        views = []
        for picture, read, (_, height, width) in zip(pictures, own, grids, strict=True):
            size = (width * self.cell_px, height * self.cell_px)
            if (size[1], size[0]) == tuple(read.shape[1:]):  # as it is, to the last bit
                views.append(read)
            else:
                scaled = image_pixels(picture.resize(size, Resampling.BICUBIC), read.device)[0]
                views.append(normalise(scaled).to(read))
        return self.with_pixels(inputs, views)


class GenericAdapter(FamilyAdapter):
    """The adapter of single pictures, whose every token is a cell."""

    @property
    def merge(self) -> int:
        """Patches along each side of a cell, where the processor gives patches."""
        pictures = getattr(self.processor, "image_processor", None)
        merge = getattr(pictures, "merge_size", None)
        return merge or getattr(self.model.config.vision_config, "spatial_merge_size", 1)

    @property
    def unfit(self) -> str | None:
        text = self.model.config.get_text_config()
        if POSITIONS_AS_COLUMNS in (getattr(text, "layer_types", None) or ()):
            return "some of its layers take positions for numbers of columns, which dropping changes"
        if getattr(text, REACH_IN_COLUMNS, None) is not None:
            return "its layers measure how far tokens are apart in columns, which dropping changes"
        return None

    def encode(self, inputs: Mapping[str, Any]) -> Any:
        """Return the output of `get_image_features`; a ValueError if that has no tokens of the prompt."""
        output = super().encode(inputs)
        if getattr(output, "pooler_output", None) is None:
            raise ValueError("its images are encoded to something other than tokens of the prompt")
        return output

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """Return the tokens of each image, from the encoder's outputs or the runs of placeholders."""
        pictures = len(patch_grids(inputs) or self.patches(inputs))
        if len(lengths) == pictures:
            return lengths
        runs = placeholder_runs(inputs["input_ids"] == self.image_token_id)
        if len(runs) % pictures:
            raise ValueError(f"{len(runs)} runs of placeholders can't be shared among {pictures} pictures")
        rows = len(runs) // pictures  # a picture may be written as a run for each row of its cells
        return [sum(runs[i : i + rows]) for i in range(0, len(runs), rows)]

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Per image the grid of blocks of patches, or that nearest to its shape; all tokens are cells."""
        layout: list[tuple[Grid, Tensor]] = []
        if grids := patch_grids(inputs):
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
        """Return the pictures from their patches, or without padding; a ValueError unless of three
        channels.
        """
        pixels = inputs["pixel_values"]
        if grids := patch_grids(inputs):
            side = self.model.config.vision_config.patch_size
            return to_pictures(pixels, grids, self.merge, side, pixels[0].numel() // (3 * side**2))
        if isinstance(pixels, Tensor) and pixels.ndim == 5:  # (prompts, pictures, 3, h, w)
            pixels = pixels.flatten(0, 1)
        if any(picture.ndim != 3 or len(picture) != 3 for picture in pixels):
            shape = tuple(pixels.shape) if isinstance(pixels, Tensor) else [tuple(p.shape) for p in pixels]
            raise ValueError(f"pixel_values {shape} are no pictures [n, 3, height, width]")
        sizes = inputs.get("image_sizes")
        whole = sizes is not None and len(sizes) == len(pixels)  # tiles have no sizes of their own
        return unpadded(pixels, sizes) if whole else list(pixels)


class PaliGemmaAdapter(GenericAdapter):
    """PaliGemma: a square of cells; image and question attend to each other.

    Released checkpoints have no chat template: their processor writes a begin token, the question and a line
    break.
    """

    @cached_property
    def markers(self) -> TemplateMarkers | None:
        tokenizer = getattr(self.processor, "tokenizer", None)
        return None if tokenizer is None else TemplateMarkers(tokenizer.bos_token, "\n")


def patch_grids(inputs: Mapping[str, Any]) -> list[Grid]:
    """Return the grid of patches (t, h, w) of each picture; [] where the processor gives none."""
    grids = inputs.get("image_grid_thw")
    return [] if grids is None else [(t, h, w) for t, h, w in grids.tolist()]


def unpadded(pixels: Sequence[Tensor] | Tensor, sizes: Any) -> list[Tensor]:
    """Pictures [3, h, w] of their sizes [n, 2], from those padded on the right and below: [n, 3, H, W]."""
    return [picture[:, : int(h), : int(w)] for picture, (h, w) in zip(pixels, sizes, strict=True)]


def nearest_grid(count: int, ratio: float) -> tuple[int, int]:
    """Return the grid (H, W) of `count` cells whose shape is nearest to `ratio`, height over width of the
    picture.

    A ValueError where the nearest is more than MAX_STRETCH off.
    """

    def stretch(rows: int) -> float:
        shape = rows * rows / count / ratio
        return max(shape, 1 / shape)  # rows / columns over the picture's height / width, either way round

    rows = min((rows for rows in range(1, count + 1) if count % rows == 0), key=stretch)
    if stretch(rows) > MAX_STRETCH:
        raise ValueError(f"{count} cells make no grid in the shape of a picture of {ratio:.3g} to 1")
    return rows, count // rows
