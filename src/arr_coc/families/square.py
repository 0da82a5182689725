"""Families whose tower reads one square view of a picture: finer crops of the picture, encoded beside it.

The view of the whole, every token of it, is the gestalt: the processor writes the prompt for it, and it is in
every answer. The same square at two or three times the view's scale is cut into crops of the tower's own
size; cells are chosen over all crops, and only crops that hold a chosen one are encoded. The chosen cells'
tokens follow those of the view, each at the position of the token of the view that covers it: text keeps its
positions, and without a chosen cell the prompt is the stock model's.

Crops are inputs beside the processor's own: `crop_values` [c, 3, s, s], those of each image row by row, and
`crop_grids` [images, 2], rows and columns of each image's crops; (1, 1) where a picture has nothing finer to
show: it has no crop, and its cells are those of the view.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from PIL.Image import Image
from torch import Tensor

from arr_coc.families.generic import GenericAdapter
from arr_coc.families.tiles import joined, raster
from arr_coc.seam.assembly import (
    CROP,
    CROP_GRIDS,
    CROP_VALUES,
    GESTALT,
    Compacted,
    Layout,
    VisualFeatures,
    joined_tokens,
    without_crops,
)
from arr_coc.seam.base import FamilyAdapter, Grid
from arr_coc.seam.partial import numbered_cells
from arr_coc.seam.question import TemplateMarkers

MOST_TIMES = 3
"""The most crops along each side of a picture."""
SAME = 0.04
"""The most that two views of one picture differ in, mean over pixels in [0, 1] at COARSE px."""
COARSE = 32


class CroppedAdapter(FamilyAdapter):
    """Base class of the adapters of families of one square view: they say how many cells it has a side."""

    by_crops = True

    @property
    @abstractmethod
    def side(self) -> int:
        """Patches along each side of the tower's square input; each is a cell."""

    @property
    def view_cells(self) -> int:
        """Cells of the view of the whole."""
        return self.side**2

    @property
    def input_px(self) -> int:
        """Px along each side of the tower's square input."""
        return self.model.config.vision_config.image_size

    @property
    def patch_px(self) -> int:
        """Px along each side of a cell."""
        return self.model.config.vision_config.patch_size

    # ---- making crops ---------------------------------------------------------------------------------

    def lacks_crops(self, inputs: Mapping[str, Any], pictures: Sequence[Image] | None) -> str | None:
        """What hinders crops, in a few words; None: nothing does.

        Args:
            inputs: processor inputs with images.
            pictures: the images as the user has them; None: they aren't at hand.

        Raises:
            ValueError: another number of pictures than the prompt has images.
        """
        if pictures is None:
            return "crops are cut from pictures as you have them: pass pictures=[...]"
        if getattr(self.processor, "image_processor", None) is None:
            return "crops need the model's processor"
        images = len(inputs["pixel_values"])
        if len(pictures) != images:
            raise ValueError(f"{len(pictures)} pictures are passed, and the prompt has {images} images")
        if (count := self._view_tokens(inputs)) != self.view_cells:
            return (
                f"its view of a picture has {count} tokens, and crops add cells to one of {self.view_cells}"
            )
        return None

    def crops(self, inputs: Mapping[str, Any], pictures: Sequence[Image]) -> dict[str, Tensor]:
        """The crops of pictures, as inputs beside the processor's own, in the dtype of `pixel_values`.

        Args:
            inputs: processor inputs with images.
            pictures: the images as the user has them, in order of appearance.

        Raises:
            ValueError: pictures that aren't those of the inputs, or an image processor that makes no square
                of the size it is told.
        """
        pixels, side = inputs["pixel_values"], self.input_px
        times = [times_finer(picture.size, side) for picture in pictures]
        cut = [self._cut(picture, n).to(pixels) for picture, n in zip(pictures, times, strict=True) if n > 1]
        # Compared at the view's own scale: stripes of a few px look otherwise at another one.
        views = torch.cat([self._cut(picture, 1) for picture in pictures]).to(pixels)
        pairs = zip(self.images({**inputs, "pixel_values": views}), self.images(inputs), strict=True)
        for number, pair in enumerate(pairs):
            small = [F.interpolate(x[None], (COARSE, COARSE), mode="area") for x in pair]
            if float((small[0] - small[1]).abs().mean()) > SAME:
                raise ValueError(
                    f"picture {number} does not show what the model's view of image {number} shows: pass the "
                    "pictures in the order of the prompt's images, as the processor got them"
                )
        return {
            CROP_VALUES: torch.cat(cut) if cut else pixels.new_zeros(0, 3, side, side),
            CROP_GRIDS: torch.tensor([(n, n) for n in times]),
        }

    def _cut(self, picture: Image, times: int) -> Tensor:
        """The crops [times**2, 3, s, s] of what the view shows of a picture.

        A rim of the tower's input may hold no whole patch; crops overlap by it, so that cells lie side by
        side.
        """
        reader, side = self.processor.image_processor, self.input_px
        sizes = {
            name: {key: times * px for key, px in _sides(getattr(reader, name)).items() if px}
            for name in ("size", "crop_size")
            if getattr(reader, name, None)
        }
        fine = reader(images=picture, return_tensors="pt", **sizes)["pixel_values"][0]
        if fine.shape != (3, times * side, times * side):
            raise ValueError(
                f"{type(reader).__name__} makes {tuple(fine.shape)} of a picture where crops need "
                f"{(3, times * side, times * side)}; use mode='prune'"
            )
        step = self.side * self.patch_px
        parts = fine.unfold(1, side, step).unfold(2, side, step)[:, :times, :times]  # (3, n, n, s, s)
        return parts.permute(1, 2, 0, 3, 4).reshape(-1, 3, side, side)

    # ---- where they lie -------------------------------------------------------------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        """Computed from the prompt; with crops among the inputs their cells, which have no place in it."""
        if not self.by_crops:
            return super().layout(inputs)
        count, device = self._view_tokens(inputs), inputs["pixel_values"].device
        images = len(inputs["pixel_values"])
        if CROP_GRIDS not in inputs:
            grids, cells = zip(*self.cell_layout(inputs, [count] * images), strict=True)
            return Layout([count] * images, list(grids), [index.to(device) for index in cells])
        shapes = _shapes(inputs)
        own = Layout.of_grids(
            [(1, rows * self.side, columns * self.side) for rows, columns in shapes], device
        )
        return Layout(own.counts, own.grids, own.cells, [count] * images)

    def pictures_of(self, inputs: Mapping[str, Any], views: Sequence[Tensor]) -> list[Tensor]:
        """The pictures that crops show, [3, h, w] each; of one without crops its view.

        Args:
            inputs: processor inputs with crops.
            views: per image [3, h, w], without the rim that holds no whole patch.
        """
        covered, own = self.side * self.patch_px, inputs[CROP_VALUES]
        pictures, start = [], 0
        for view, (rows, columns) in zip(views, _shapes(inputs), strict=True):
            count = rows * columns if rows * columns > 1 else 0
            crops = own[start : start + count, :, :covered, :covered]
            pictures.append(joined(crops, rows, columns) if count else view)
            start += count
        return pictures

    # ---- encoding some crops alone --------------------------------------------------------------------

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Encode the crops that hold a kept cell; of an image without crops, its view."""
        if CROP_VALUES not in inputs:
            raise self._not_sparse()
        layout, unit = self.layout(inputs), self.view_cells
        numbered_cells(layout, keep)  # refuses what are no cells
        starts = accumulate(_counts(inputs)[:-1], initial=0)
        tokens = torch.cat(
            [
                raster(*shape, self.side).to(index.device)[index] + start * unit
                for index, shape, start in zip(keep, _shapes(inputs), starts, strict=True)
            ]
        )
        chosen, place = (tokens // unit).unique(return_inverse=True)
        arguments = without_crops(inputs) | {"pixel_values": self._squares(inputs)[chosen]}
        output = self.encode(arguments)
        encoded = torch.cat(list(output.pooler_output))[place * unit + tokens % unit]
        kept = [len(index) for index in keep]
        packed = isinstance(output.pooler_output, Tensor)
        return VisualFeatures(list(encoded.split(kept)), [], layout.grids, [], type(output), packed)

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """The view of the whole of each image, whatever `cells`."""
        if not self.by_crops:
            return super().coarse(inputs, cells)
        return {name: inputs[name] for name in self.visual_names if inputs.get(name) is not None}

    def views_encoded(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> tuple[int, int] | None:
        """The views of the whole, with the crops that hold a kept cell, and all; None without any crop."""
        if CROP_VALUES not in inputs or not len(inputs[CROP_VALUES]):
            return None
        used = 0
        for index, (rows, columns) in zip(keep, _shapes(inputs), strict=True):
            if rows * columns > 1:
                tokens = raster(rows, columns, self.side).to(index.device)[index]
                used += len((tokens // self.view_cells).unique())
        views = len(inputs["pixel_values"])
        return views + used, views + len(inputs[CROP_VALUES])

    def _squares(self, inputs: Mapping[str, Any]) -> Tensor:
        """What the tower can encode of images: the crops of each or, where it has none, its view."""
        crops, start, squares = inputs[CROP_VALUES], 0, []
        for view, (rows, columns) in zip(inputs["pixel_values"], _shapes(inputs), strict=True):
            count = rows * columns
            squares.append(crops[start : start + count] if count > 1 else view[None])
            start += count if count > 1 else 0
        return torch.cat(squares)

    def _view_tokens(self, inputs: Mapping[str, Any]) -> int:
        """Placeholders of each image in the prompts, which are equally many for all."""
        return int((inputs["input_ids"] == self.image_token_id).sum()) // len(inputs["pixel_values"])

    # ---- the prompt -----------------------------------------------------------------------------------

    def assemble(
        self,
        inputs: Mapping[str, Any],
        layout: Layout,
        keep: Sequence[Tensor],
        fine: VisualFeatures | None,
        gestalt: VisualFeatures | None,
        *,
        use_cache: bool = True,
        order: Sequence[Tensor] | None = None,
    ) -> Compacted:
        """With crops: each image is its view, then the kept cells of its crops, in raster order."""
        plain = without_crops(inputs)
        if layout.placeholders is None or (gestalt is None and layout.counts == layout.placeholders):
            return super().assemble(plain, layout, keep, fine, gestalt, use_cache=use_cache, order=order)
        spans, every = self.columns(inputs["input_ids"], layout.in_prompt), self.positions(inputs)
        visual = joined_tokens(gestalt, fine, [len(index) for index in keep])
        coarse = [0] * len(keep) if gestalt is None else gestalt.counts
        labels, places = [], []
        for (row, span), index, grid, count in zip(spans, keep, layout.grids, coarse, strict=True):
            if count not in (0, len(span)):
                raise ValueError(
                    f"a gestalt of {count} tokens can't stand for a view of {len(span)}: use gestalt 'resize'"
                )
            under = self._under(grid, index).to(span.device)
            uncut = grid[1:] == (self.side, self.side)
            labels += [span.new_full((count,), GESTALT)]
            labels += [span[under] if uncut else span.new_full((len(under),), CROP)]
            places += [every[..., row, span[:count]], every[..., row, span[under]]]
        return self.with_inserted(
            plain, every, spans, visual, torch.cat(labels), torch.cat(places, -1), use_cache
        )

    def _under(self, grid: tuple[int, int, int], cells: Tensor) -> Tensor:
        """The cell of the view that covers each of some cells of a finer grid."""
        _, height, width = grid
        y, x = cells // width, cells % width
        return y * self.side // height * self.side + x * self.side // width


def times_finer(size: tuple[int, int], px: int) -> int:
    """How many crops a side show a picture nearly at its own resolution: 1 to MOST_TIMES.

    Args:
        size: width and height of the picture in px.
        px: along each side of a crop.
    """
    return max(1, min(MOST_TIMES, int(min(size) / px + 0.5)))


def _sides(size: Any) -> Mapping[str, int | None]:
    """A size of an image processor, which is a dictionary or an object, by the names of its sides."""
    return size if isinstance(size, Mapping) else vars(size)


def _shapes(inputs: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Per image the rows and columns of its crops."""
    return [(rows, columns) for rows, columns in inputs[CROP_GRIDS].tolist()]


def _counts(inputs: Mapping[str, Any]) -> list[int]:
    """Per image how many squares there are of it to be encoded."""
    return [rows * columns for rows, columns in _shapes(inputs)]


# LLaVA (1.5): one square picture per image, plain positions, a CLIP-like tower.


class LlavaAdapter(CroppedAdapter):
    """LLaVA with a tower of fixed input size (CLIP, SigLIP)."""

    model_types = ("llava",)
    title = "LLaVA 1.5"
    remark = "the view of the whole stays beside the crops; no checkpoint was taught to read both"
    by_cells = True
    visual_names = (
        "pixel_values",
        "image_sizes",
        "vision_feature_layer",
        "vision_feature_select_strategy",
    )

    @property
    def merger(self) -> Any:
        """The module that projects each patch."""
        return self.model.model.multi_modal_projector

    @property
    def side(self) -> int:
        """Patches along each side of the tower's square input."""
        return self.model.config.vision_config.image_size // self.model.config.vision_config.patch_size

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """A square of patches; with the strategy "full" a class token precedes it and is always kept."""
        side = self.side
        if any(count - side * side not in (0, 1) for count in counts):
            tower = self.model.config.vision_config.model_type
            raise ValueError(
                f"llava with a {tower!r} tower makes {list(counts)} tokens per image where {side}x{side} "
                "were expected; only towers of one fixed input size (CLIP, SigLIP) are supported, or use "
                "mode='full'"
            )
        return [((1, side, side), torch.arange(count - side * side, count)) for count in counts]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The tower's input, without the rim that holds no whole patch; with crops, what these show."""
        covered = self.side * self.patch_px
        views = [picture[:, :covered, :covered] for picture in inputs["pixel_values"]]
        return self.pictures_of(inputs, views) if CROP_GRIDS in inputs else views


# Gemma 3: a square of cells for each picture and each crop of it, whatever their shapes.


class Gemma3Adapter(FamilyAdapter):
    """Gemma 3: pictures are scaled to the tower's square; crops (pan and scan) are pictures of their own."""

    model_types = ("gemma3",)
    title = "Gemma 3"
    remark = "dropping equals masking while the prompt fits the attention window"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Every token is a cell of a square."""
        sides = [math.isqrt(count) for count in counts]
        return [((1, side, side), torch.arange(side * side)) for side in sides]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The tower's input."""
        return list(inputs["pixel_values"])


# FastVLM: a square of cells for each picture, read by a tower of convolutions from timm.
#
# The generic adapter, without its check: each cell of the last layers sees nearly all of the picture, so in
# a
# model of random weights no cell changes the most with its own quarter.


class FastVLMAdapter(GenericAdapter):
    """FastVLM."""

    model_types = ("fast_vlm",)
    title = "FastVLM"
    remark = "with `timm` installed"


# PaliGemma: a square of cells for each picture, read together with the question, each seeing the other.


class PaliGemmaAdapter(Gemma3Adapter):
    """PaliGemma and PaliGemma 2. Released checkpoints have no chat template: write the prompt yourself."""

    model_types = ("paligemma",)
    title = "PaliGemma"
    remark = "without a chat template of its own `generate` alone; the image is read anew for each question"
    prefix = True

    @cached_property
    def markers(self) -> TemplateMarkers | None:
        """What its processor, not a template, writes around a user's words."""
        tokenizer = getattr(self.processor, "tokenizer", None)
        return None if tokenizer is None else TemplateMarkers(tokenizer.bos_token, "\n")
