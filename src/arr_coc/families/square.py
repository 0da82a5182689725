"""Families whose tower reads one square view of a picture: finer crops of the picture are encoded beside it.

    pixel_values [images, 3, s, s]    the view; all of its tokens are always kept
    crop_values [c, 3, s, s]          crops of the same square at two or three times its scale, row by row
    crop_grids [images, 2]            rows and columns of each image's crops; (1, 1) where it has none

Cells are chosen over all crops (of an image without crops: over its view); only crops with one are encoded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor

from arr_coc.families.tiles import encode_views, joined_tiles, raster
from arr_coc.files.pixels import same_picture
from arr_coc.seam.assembly import (
    CROP,
    CROP_GRIDS,
    CROP_VALUES,
    GESTALT,
    Compacted,
    Layout,
    VisualFeatures,
    covering_cells,
    joined_tokens,
    without_crops,
)
from arr_coc.seam.base import Encodes, FamilyAdapter, Grid
from arr_coc.seam.pixels import numbered_cells

MAX_CROPS_A_SIDE = 3  # most crops along each side of a picture
COMPARED_PX = 32  # along each side of two views of one picture that are compared


class CroppedAdapter(FamilyAdapter):
    """Base class of families of one square view; a family defines its cells along each side.

    The chosen cells' tokens follow those of the view, each at the position of the view's token that covers
    it: text keeps its positions, and without a chosen cell the prompt is the stock model's.
    """

    encodes: Encodes = "crops"

    @property
    @abstractmethod
    def side(self) -> int:
        """Patches along each side of the tower's square input; each is a cell."""

    @property
    def view_cells(self) -> int:
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

    def lacks_finer(self, inputs: Mapping[str, Any], pictures: Sequence[Image] | None) -> str | None:
        return "saccade reads crops of the picture, as fine as it is, without being told"

    def crops(self, inputs: Mapping[str, Any], pictures: Sequence[Image]) -> dict[str, Tensor]:
        """Return the crops of pictures, in the dtype of `pixel_values`.

        A ValueError for pictures that aren't those of the inputs, or an image processor that ignores sizes.
        """
        pixels, side = inputs["pixel_values"], self.input_px
        times = [times_finer(picture.size, side) for picture in pictures]
        cut = [self._cut(picture, n).to(pixels) for picture, n in zip(pictures, times, strict=True) if n > 1]
        # Compared at the view's own scale: stripes of a few px look otherwise at another one.
        views = torch.cat([self._cut(picture, 1) for picture in pictures]).to(pixels)
        pairs = zip(self.images({**inputs, "pixel_values": views}), self.images(inputs), strict=True)
        for number, pair in enumerate(pairs):
            if not same_picture(*pair, px=COMPARED_PX):
                raise ValueError(
                    f"picture {number} does not show what the model's view of image {number} shows: pass the "
                    "pictures in the order of the prompt's images, as the processor got them"
                )
        return {
            CROP_VALUES: torch.cat(cut) if cut else pixels.new_zeros(0, 3, side, side),
            CROP_GRIDS: torch.tensor([(n, n) for n in times]),
        }

    def _cut(self, picture: Image, times: int) -> Tensor:
        """Return the crops [times**2, 3, s, s] of the square that the view shows of a picture."""
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
        step = self.side * self.patch_px  # less than the side where a rim holds no whole patch: crops overlap
        parts = fine.unfold(1, side, step).unfold(2, side, step)[:, :times, :times]  # (3, n, n, s, s)
        return parts.permute(1, 2, 0, 3, 4).reshape(-1, 3, side, side)

    # ---- where they lie -------------------------------------------------------------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        """Return the layout of each view's tokens; with crops, of their cells, which have no place in the
        prompt.
        """
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
        """Return the pictures that crops show, [3, h, w] each; of one without crops its view, without a
        rim.
        """
        covered = self.side * self.patch_px
        return [
            joined_tiles(crops[:, :, :covered, :covered], *shape) if len(crops) else view
            for view, crops, shape in zip(views, _crops(inputs), _shapes(inputs), strict=True)
        ]

    # ---- encoding some crops alone --------------------------------------------------------------------

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Encodes the crops that hold a kept cell; of an image without crops, its view."""
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
        plain, squares = without_crops(inputs), self._squares(inputs)
        return encode_views(
            lambda chosen: self.encode(plain | {"pixel_values": squares[chosen]}),
            tokens,
            unit,
            [len(index) for index in keep],
            layout.grids,
        )

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """Inputs with the one view of each image and no crops, whatever `cells`."""
        return {name: inputs[name] for name in self.visual_names if inputs.get(name) is not None}

    def views_encoded(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> tuple[int, int] | None:
        """Return how many views and crops are encoded, and how many there are; None without any crop."""
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
        """Return the crops of each image or, where it has none, its view: [n, 3, s, s]."""
        pairs = zip(_crops(inputs), inputs["pixel_values"], strict=True)
        return torch.cat([crops if len(crops) else view[None] for crops, view in pairs])

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
    ) -> Compacted:
        """With crops: each image is its view, then the kept cells of its crops, in raster order."""
        plain = without_crops(inputs)
        if layout.placeholders is None or (gestalt is None and layout.counts == layout.placeholders):
            return super().assemble(plain, layout, keep, fine, gestalt, use_cache=use_cache)
        spans, every = self.columns(inputs["input_ids"], layout.in_prompt), self.positions(inputs)
        visual = joined_tokens(gestalt, fine, [len(index) for index in keep])
        coarse = [0] * len(keep) if gestalt is None else gestalt.counts
        labels, places = [], []
        for (row, span), index, grid, count in zip(spans, keep, layout.grids, coarse, strict=True):
            if count not in (0, len(span)):
                raise ValueError(
                    f"a gestalt of {count} tokens can't stand for a view of {len(span)}: use gestalt 'resize'"
                )
            under = covering_cells((1, self.side, self.side), grid, index).to(span.device)
            uncut = grid[1:] == (self.side, self.side)
            # The gestalt first; cells of an uncut picture have columns of their own, those of crops none.
            labels += [span.new_full((count,), GESTALT)]
            labels += [span[under] if uncut else span.new_full((len(under),), CROP)]
            places += [every[..., row, span[:count]], every[..., row, span[under]]]
        return self.with_inserted(
            plain, every, spans, visual, torch.cat(labels), torch.cat(places, -1), use_cache
        )


def times_finer(size: tuple[int, int], px: int) -> int:
    """Return how many crops of `px` a side show a picture (width, height) nearly at its own resolution."""
    return max(1, min(MAX_CROPS_A_SIDE, int(min(size) / px + 0.5)))


def _sides(size: Any) -> Mapping[str, int | None]:
    """Return the sides of an image processor's size, which is a dictionary or an object."""
    return size if isinstance(size, Mapping) else vars(size)


def _shapes(inputs: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Per image the rows and columns of its crops."""
    return [(rows, columns) for rows, columns in inputs[CROP_GRIDS].tolist()]


def _counts(inputs: Mapping[str, Any]) -> list[int]:
    """Per image the number of squares to encode."""
    return [rows * columns for rows, columns in _shapes(inputs)]


def _crops(inputs: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """Per image its crops [rows * columns, 3, s, s]; [0, 3, s, s] where it has none."""
    return inputs[CROP_VALUES].split([count if count > 1 else 0 for count in _counts(inputs)])


class LlavaAdapter(CroppedAdapter):
    """LLaVA 1.5 with a tower of fixed input size (CLIP, SigLIP): a square of patches, each a cell."""

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
        return self.model.config.vision_config.image_size // self.model.config.vision_config.patch_size

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Return a square of patches; with the strategy "full" a class token precedes it and is always
        kept.
        """
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
        """Return the tower's input without its rim of partial patches; with crops, the pictures that these
        show.
        """
        covered = self.side * self.patch_px
        views = [picture[:, :covered, :covered] for picture in inputs["pixel_values"]]
        return self.pictures_of(inputs, views) if CROP_GRIDS in inputs else views
