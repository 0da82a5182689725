"""Families whose processor cuts a large picture into tiles and adds a small overview of the whole picture.

    InternVL, Aya, Command A, Ovis2    pixel_values [tiles and views, 3, s, s]
    Idefics3, SmolVLM                  pixel_values [B, most of a prompt, 3, s, s], padded with black ones
    Granite Docling                    the same, with pixel_attention_mask [B, most of a prompt]
    LLaVA-NeXT, LLaVA-OneVision        pixel_values [images, 1 + tiles, 3, s, s], image_sizes [images, 2]

A view is a tile or an overview. The cells are those of all tiles in one raster; overviews and tokens that
name a tile are always kept. An uncut picture has the cells of its one view.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.models.llava_next.modeling_llava_next import get_anyres_image_grid_shape, unpad_image

from arr_coc.families.tiles import (
    arrangement,
    arrangements,
    encode_views,
    joined_tiles,
    numbers_by_first,
    numbers_by_last,
    placeholder_groups,
    placeholder_runs,
    raster,
    rows_and_columns,
    run_spans,
)
from arr_coc.seam.assembly import Layout, VisualFeatures, image_spans
from arr_coc.seam.base import Encodes, FamilyAdapter, Grid
from arr_coc.seam.pixels import REMEDY, channels_first, numbered_cells, to_picture


class TiledAdapter(FamilyAdapter):
    """Base class of families in square tiles with the overview last; a family defines a cell's size in px.

    The vision tower encodes each view separately, so a tile's tokens depend on no other tile: `encode_cells`
    encodes the tiles that hold a kept cell, and the overviews.
    """

    encodes: Encodes = "tiles"

    @cached_property
    def _shapes(self) -> Any:
        """Per tensor of pixels its version and the arrangement of its tiles, which is slow to find."""
        return WeakTensorKeyDictionary()

    @property
    @abstractmethod
    def cell_px(self) -> int:
        """Px along each side of a cell."""

    @abstractmethod
    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        """Return how many tiles and overviews each image has, from the prompts [B, S] and `views`."""

    def views(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return the tiles and overviews of all images, in order: [n, 3, s, s]."""
        return inputs["pixel_values"]

    def with_views(self, inputs: Mapping[str, Any], chosen: Tensor) -> dict[str, Any]:
        """Return the inputs for `encode` with the views of these numbers, long [m]."""
        return dict(inputs) | {"pixel_values": self.views(inputs)[chosen]}

    def side(self, inputs: Mapping[str, Any]) -> int:
        """Return the number of cells along each side of a tile."""
        return self.views(inputs).shape[-1] // self.cell_px

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """Return the tokens of each image's tiles and overview."""
        return [number * self.side(inputs) ** 2 for number in self._numbers(inputs)]

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int]:
        ids, views = inputs["input_ids"], self.views(inputs)
        image_spans(ids == self.image_token_id, [self.side(inputs) ** 2] * len(views))
        if (numbers := self._numbers(inputs)) and sum(numbers) == len(views):
            return self.token_counts(inputs, ())
        raise ValueError(f"the prompt has images of {numbers} tiles and views for {len(views)}; {REMEDY}")

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Per image the grid of all tiles and the tokens of its cells, without those of the overview."""
        side = self.side(inputs)
        return [
            ((1, rows * side, columns * side), raster(rows, columns, side))
            for rows, columns in self._arrangements(inputs)
        ]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        views = self.views(inputs).split(self._numbers(inputs))
        shapes = self._arrangements(inputs)
        return [
            joined_tiles(own[: rows * columns], rows, columns)
            for own, (rows, columns) in zip(views, shapes, strict=True)
        ]

    # ---- encoding some tiles alone --------------------------------------------------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        counts = list(self.token_counts(inputs, ()))
        grids, cells = zip(*self.cell_layout(inputs, counts), strict=True)
        device = inputs["pixel_values"].device
        return Layout(counts, list(grids), [index.to(device) for index in cells])

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Encode the tiles that hold a kept cell, and the overviews: tokens of kept cells and overviews."""
        layout, unit = self.layout(inputs), self.side(inputs) ** 2
        if any(len(indices) for indices in keep):
            numbered_cells(layout, keep)  # refuses what are no cells
        indices = layout.tokens_to_keep(keep)  # those of overviews among them
        kept = [len(index) for index in indices]
        if kept == layout.counts:  # all at once, for the stock model's own results
            return replace(self.features(inputs), cells=[])
        if not sum(kept):
            raise ValueError("no cell is kept in any image; keep at least one")
        starts = accumulate(layout.counts[:-1], initial=0)
        tokens = torch.cat([index + start for index, start in zip(indices, starts, strict=True)])
        return encode_views(
            lambda chosen: self.encode(self.with_views(inputs, chosen)), tokens, unit, kept, layout.grids
        )

    def other_tokens(self, inputs: Mapping[str, Any], layout: Layout) -> VisualFeatures | None:
        """Return the tokens of the overviews, encoded alone; None where no image has one."""
        if layout.counts == layout.sizes:
            return None
        return self.encode_cells(inputs, [cells[:0] for cells in layout.cells])

    def views_encoded(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> tuple[int, int]:
        """Return how many views hold a kept token, and how many there are."""
        unit, layout = self.side(inputs) ** 2, self.layout(inputs)
        views = [len((index // unit).unique()) for index in layout.tokens_to_keep(keep)]
        return sum(views), sum(layout.counts) // unit

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """Return the inputs with each image's overview or one view alone, whatever `cells`."""
        ends = torch.tensor(self._numbers(inputs)).cumsum(0) - 1
        names = [name for name in self.visual_names if inputs.get(name) is not None]
        some = self.with_views(inputs, ends.to(inputs["pixel_values"].device))
        return {name: some[name] for name in names}

    def _numbers(self, inputs: Mapping[str, Any]) -> list[int]:
        """Return how many views each image has; inputs without a prompt are a coarse view: one of each
        image.
        """
        views = self.views(inputs)
        ids = inputs.get("input_ids")
        return [1] * len(views) if ids is None else self.numbers(ids, views)

    def _arrangements(self, inputs: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Return the rows and columns of each image's tiles."""
        pixels, numbers = inputs["pixel_values"], self._numbers(inputs)
        state = (numbers, 0 if pixels.is_inference() else pixels._version)
        memo = self._shapes.get(pixels)
        if memo is None or memo[0] != state:
            memo = state, arrangements(self.views(inputs), numbers)
            self._shapes[pixels] = memo
        return memo[1]


class Idefics3Adapter(TiledAdapter):
    """Idefics3 and SmolVLM: row and column tokens before each tile, and a token before the overview."""

    @property
    def cell_px(self) -> int:
        return self.model.config.vision_config.patch_size * self.model.config.scale_factor

    def views(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return the tiles and overviews [n, 3, s, s], without the black ones that pad the rows of a
        batch.
        """
        views = inputs["pixel_values"].flatten(0, 1)
        return views[views.flatten(1).any(1)]  # a view of the batch's padding is 0 everywhere

    def with_views(self, inputs: Mapping[str, Any], chosen: Tensor) -> dict[str, Any]:
        """Inputs for `encode` with the views of these numbers, as one row of a batch, [1, m, 3, s, s]."""
        filled = inputs["pixel_values"].flatten(0, 1).flatten(1).any(1)
        names = [name for name in ("pixel_values", "pixel_attention_mask") if inputs.get(name) is not None]
        return dict(inputs) | {name: inputs[name].flatten(0, 1)[filled][chosen][None] for name in names}

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        return numbers_by_last(input_ids, self.image_token_id)


class GraniteDoclingAdapter(TiledAdapter):
    """Granite Docling: row and column tokens before each tile, and deepstack levels.

    With `fine_route=True` of the processor a cell is half as wide and high.
    """

    @property
    def cell_px(self) -> int:
        return self.model.config.vision_config.patch_size * self.model.config.vision_config.scale_factor

    def side(self, inputs: Mapping[str, Any]) -> int:
        coarse = super().side(inputs)
        return coarse if inputs.get("tile_fine_mask") is None else 2 * coarse

    def views(self, inputs: Mapping[str, Any]) -> Tensor:
        """Return the tiles and overviews [n, 3, s, s], without those that pad the rows of a batch."""
        return inputs["pixel_values"][inputs["pixel_attention_mask"].bool()]

    def with_views(self, inputs: Mapping[str, Any], chosen: Tensor) -> dict[str, Any]:
        """Inputs for `encode` with the views of these numbers, as one row of a batch, [1, m, 3, s, s]."""
        mask = inputs["pixel_attention_mask"].new_ones(1, len(chosen))
        one = {"pixel_values": self.views(inputs)[chosen][None], "pixel_attention_mask": mask}
        fine = inputs.get("tile_fine_mask")
        return dict(inputs) | one | ({} if fine is None else {"tile_fine_mask": fine[:1]})

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        return numbers_by_first(input_ids, self.image_token_id)


class InternVLAdapter(TiledAdapter):
    """InternVL 2.5, 3 and 3.5, and Qianfan-OCR: tiles and overview between one start and one end token."""

    @property
    def cell_px(self) -> int:
        return int(self.model.config.vision_config.patch_size[0] / self.model.config.downsample_ratio)

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        """Return the views of each image, from the runs of placeholders: all views of one are one run."""
        counts = placeholder_runs(input_ids == self.image_token_id)
        length = sum(counts) // len(views)  # tokens of a tile
        return [count // length for count in counts]


class AyaVisionAdapter(TiledAdapter):
    """Aya Vision: each tile and overview is named in ordinary text before it ("TILE_1", "TILE_GLOBAL")."""

    @property
    def cell_px(self) -> int:
        return self.model.config.vision_config.patch_size * self.model.config.downsample_factor

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        return numbers_by_last(input_ids, self.image_token_id)


class Cohere2VisionAdapter(AyaVisionAdapter):
    """Command A Vision: a line break ends each view, so only an image's first follows a special token."""

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        return numbers_by_first(input_ids, self.image_token_id)


class Ovis2Adapter(FamilyAdapter):
    """Ovis2: an overview, then square tiles of the picture.

    Tokens around the views are words of the prompt whose embeddings the encoder gives with its features.
    """

    @property
    def image_words(self) -> Sequence[int]:
        return self.model.config.visual_indicator_token_ids

    @property
    def side(self) -> int:
        """Cells along each side of a view."""
        vision = self.model.config.vision_config
        return -(-(vision.image_size // vision.patch_size) // vision.hidden_stride)  # rounded up

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """Return the tokens of each image's views: their placeholders stand a single token apart."""
        return placeholder_groups(inputs["input_ids"] == self.image_token_id)

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int]:
        counts, unit = self.token_counts(inputs, ()), self.side**2
        image_spans(inputs["input_ids"] == self.image_token_id, [unit] * len(inputs["pixel_values"]))
        if any(count % unit for count in counts):
            raise ValueError(f"the prompt has images of {counts} tokens, and a view has {unit}; {REMEDY}")
        return counts

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        side, layout = self.side, []
        for tiles, (rows, columns) in self._tiles(inputs, counts):
            cells = raster(rows, columns, side) + (side**2 if len(tiles) > 1 else 0)  # behind the overview
            layout.append(((1, rows * side, columns * side), cells))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        counts = self.token_counts(inputs, ())
        return [joined_tiles(tiles, *shape) for tiles, shape in self._tiles(inputs, counts)]

    def _tiles(
        self, inputs: Mapping[str, Any], counts: Sequence[int]
    ) -> list[tuple[Tensor, tuple[int, int]]]:
        """Return each image's tiles [n, 3, s, s], or its one view, and their rows and columns."""
        views = inputs["pixel_values"].split([count // self.side**2 for count in counts])
        return [(own[1:], arrangement(own[1:], own[0])) if len(own) > 1 else (own, (1, 1)) for own in views]


class Lfm2VLAdapter(FamilyAdapter):
    """LFM2-VL: square tiles of a large picture, each introduced by a marker token, then an overview.

    The overview has the picture's shape. `pixel_values` [views, patches, p * p * 3] are padded,
    `spatial_shapes` [views, 2] the patches of each view. Most layers of the language model are short
    convolutions, which mix neighbouring tokens, so dropping is not the same as masking.
    """

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        return placeholder_groups(inputs["input_ids"] == self.image_token_id)

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int]:
        unit = self.model.config.downsample_factor**2
        tokens = [height * width // unit for height, width in inputs["spatial_shapes"].tolist()]
        image_spans(inputs["input_ids"] == self.image_token_id, tokens)
        counts = self.token_counts(inputs, ())
        ends = {*accumulate(tokens)}
        if not ends.issuperset(accumulate(counts)):
            raise ValueError(f"the prompt has images of {counts} tokens and views of {tokens}; {REMEDY}")
        return counts

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
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
        counts = self.token_counts(inputs, ())
        return [
            joined_tiles(torch.stack(views[: rows * columns]), rows, columns) if len(views) > 1 else views[0]
            for views, (rows, columns) in self._images(inputs, counts)
        ]

    @property
    def _patch(self) -> int:
        return self.model.config.vision_config.patch_size

    def _images(
        self, inputs: Mapping[str, Any], counts: Sequence[int]
    ) -> list[tuple[list[Tensor], tuple[int, int]]]:
        """Return each image's views [3, h, w], and the rows and columns of its tiles."""
        factor, shapes = self.model.config.downsample_factor, inputs["spatial_shapes"].tolist()
        pictures = iter(
            (to_picture(channels_first(rows[: h * w]), (1, h, w), 1, self._patch, 1), h * w // factor**2)
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


class Step3p7Adapter(FamilyAdapter):
    """Step 3.7: windows of a large picture row by row, then an overview, square whatever its shape.

    `pixel_values` [images, 3, s, s] are the overviews, `pixel_values_local` [windows, 3, w, w] the windows,
    `num_local_patches` [images] how many each image has. Windows of a row have only their two marks between
    them in the prompt.
    """

    needed = ("num_local_patches",)

    def early_counts(self, inputs: Mapping[str, Any]) -> None:
        """Check prompt against pixels (ValueError) and returns None: tokens are known after encoding."""
        numbers = torch.as_tensor(inputs["num_local_patches"]).tolist()
        local = inputs.get("pixel_values_local")
        views = len(placeholder_runs(inputs["input_ids"] == self.image_token_id))
        own = len(inputs["pixel_values"]), 0 if local is None else len(local)
        if views != sum(own) or own != (len(numbers), sum(numbers)):
            raise ValueError(
                f"the prompt has {views} views of pictures and the pixels {own[0]} of the whole and {own[1]} "
                f"windows, for {numbers}; {REMEDY}"
            )
        self.windows(inputs)

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        layout: list[tuple[Grid, Tensor]] = []
        for rows, columns, tokens in self.windows(inputs):
            side = isqrt(tokens)
            layout.append(((1, rows * side, columns * side), raster(rows, columns, side)))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        pictures, end = [], 0
        numbers = torch.as_tensor(inputs["num_local_patches"]).tolist()
        for view, number, (rows, columns, _) in zip(
            inputs["pixel_values"], numbers, self.windows(inputs), strict=True
        ):
            end += number
            own = inputs["pixel_values_local"][end - number : end] if number else view[None]
            pictures.append(joined_tiles(own, rows, columns))
        return pictures

    def windows(self, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """Return the rows and columns of each picture's windows (1, 1 without any) and the tokens of one."""
        numbers, windows = iter(torch.as_tensor(inputs["num_local_patches"]).tolist()), []
        for ids in inputs["input_ids"]:
            spans = run_spans(ids == self.image_token_id)
            while spans:
                number = next(numbers)
                own = spans[: number or 1]
                windows.append((*rows_and_columns(own), own[0][1] - own[0][0]))
                spans = spans[number + 1 :]
        return windows


class Slices(NamedTuple):
    """How a picture was cut: rows and columns of slices, tokens and (h, w) patches of each of its views."""

    rows: int
    columns: int
    tokens: list[int]
    sizes: list[tuple[int, int]]


class MiniCPMVAdapter(FamilyAdapter):
    """MiniCPM-V 4.6 and 4.7: an overview, then the slices of a large picture, row by row.

    `pixel_values` [1, 3, p, patches * p] are the patches of all views side by side, `target_sizes` [views, 2]
    the patches of each. Slices of a row have only their two marks between them in the prompt.
    """

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        return [sum(picture.tokens) for picture in self.slices(inputs)]

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int]:
        return self.token_counts(inputs, ())

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        layout: list[tuple[Grid, Tensor]] = []
        for rows, columns, tokens, sizes in self.slices(inputs):
            height, width = sizes[-1]
            merge = isqrt(height * width // tokens[-1])  # patches along each side of a cell
            high, wide = height // merge, width // merge
            places = torch.arange(rows * columns * high * wide).view(rows, columns, high, wide)
            # Behind the tokens of the view of the whole, of which there are none where nothing was cut.
            cells = sum(tokens) - places.numel() + places.transpose(1, 2).reshape(-1)
            layout.append(((1, rows * high, columns * wide), cells))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        pixels = inputs["pixel_values"][0]  # patches side by side: (3, p, n * p)
        side, end, pictures = pixels.shape[1], 0, []
        for rows, columns, _, sizes in self.slices(inputs):
            height, width = sizes[-1]
            end += sum(h * w for h, w in sizes) * side
            own = pixels[..., end - rows * columns * height * width * side : end]
            # (3, y, row, column, patch row, patch column, x), y and x within a patch, to rows of pixels
            blocks = own.view(3, side, rows, columns, height, width, side).permute(0, 2, 4, 1, 3, 5, 6)
            pictures.append(blocks.reshape(3, rows * height * side, columns * width * side))
        return pictures

    def slices(self, inputs: Mapping[str, Any]) -> list[Slices]:
        """Return how each picture was cut, read from the prompt; a ValueError where the pixels don't fit."""
        sizes = [(height, width) for height, width in inputs["target_sizes"].tolist()]
        views = len(placeholder_runs(inputs["input_ids"] == self.image_token_id))
        if views != len(sizes):
            raise ValueError(f"the prompt has {views} views and the pixels {len(sizes)}; {REMEDY}")
        pictures = []
        for ids in inputs["input_ids"]:
            runs = run_spans(ids == self.image_token_id)
            marks = [int(ids[start - 1]) for start, _ in runs]  # each view is of the whole, or a slice
            begin = [number for number, mark in enumerate(marks) if mark == marks[0]]
            for left, right in pairwise([*begin, len(runs)]):
                own, sizes = sizes[: right - left], sizes[right - left :]
                if len({*own[1:]}) > 1:
                    raise ValueError(f"slices of {own[1:]} patches are no raster; use mode='full'")
                tokens = [stop - start for start, stop in runs[left:right]]
                if any(n * isqrt(h * w // n) ** 2 != h * w for (h, w), n in zip(own, tokens, strict=True)):
                    raise ValueError(f"the prompt has {tokens} tokens for views of {own} patches; {REMEDY}")
                rows, columns = rows_and_columns(runs[left + 1 : right] or runs[left:right])
                pictures.append(Slices(rows, columns, tokens, own))
        return pictures


class Tiling(NamedTuple):
    """The place of one picture in its tiles, in patches."""

    tiles: tuple[int, int]  # (down, across)
    window: tuple[int, int, int, int]  # top, left, height, width of the unpadded picture
    grid: tuple[int, int]  # (H, W) of its tokens; smaller than the window if the model shrinks it

    @property
    def empty(self) -> bool:
        return 0 in self.grid


class LlavaNextAdapter(FamilyAdapter):
    """LLaVA-NeXT (LLaVA-1.6): an overview, then the picture in tiles, a newline token after each row.

    The cells are those of the tiled picture, unpadded; overview and newline tokens are always kept. An image
    that is an overview alone, or too thin for a patch in its tiles, has the cells of the overview.
    """

    @property
    def side(self) -> int:
        """Patches along each side of a tile."""
        return self.model.config.vision_config.image_size // self.model.config.vision_config.patch_size

    def single_view(self, inputs: Mapping[str, Any], image: int) -> bool:
        """Return whether the image comes as its overview alone."""
        return False

    def shrunk(self, height: int, width: int, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """Return the token grid of a picture of height x width patches."""
        return height, width

    def tiling(self, inputs: Mapping[str, Any], image: int) -> Tiling:
        """Return the tiling of one picture, by the model's own rules."""
        config, side = self.model.config, self.side
        size = [int(n) for n in inputs["image_sizes"][image]]
        tiles = get_anyres_image_grid_shape(
            size, config.image_grid_pinpoints, config.vision_config.image_size
        )
        full_height, full_width = tiles[0] * side, tiles[1] * side
        numbered = torch.arange(full_height * full_width).view(1, full_height, full_width)
        inside = unpad_image(numbered, size)[0]  # the patches that are no padding, by number
        height, width = inside.shape
        top, left = divmod(int(inside[0, 0]), full_width) if inside.numel() else (0, 0)
        return Tiling(tiles, (top, left, height, width), self.shrunk(height, width, inputs))

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Return the tiled picture's grid, its cells after the overview and between newline tokens."""
        base = self.side**2
        layout: list[tuple[Grid, Tensor]] = []
        for image, count in enumerate(counts):
            expected, grid, cells = base + 1, (1, self.side, self.side), torch.arange(base)
            if not self.single_view(inputs, image):
                tiling = self.tiling(inputs, image)
                height, width = tiling.grid
                expected = base + height * (width + 1)
                if not tiling.empty:
                    # last column: newlines
                    numbered = base + torch.arange(height * (width + 1)).view(height, width + 1)
                    grid, cells = (1, height, width), numbered[:, :width].flatten()
            if count != expected:
                raise ValueError(
                    f"{self.model.config.model_type} made {count} tokens for image {image} where {expected} "
                    "were expected; only towers without a class token in their output are supported, or use "
                    "mode='full'"
                )
            layout.append((grid, cells))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        p = self.model.config.vision_config.patch_size
        covered = self.side * p
        pictures = []
        for image, views in enumerate(inputs["pixel_values"]):
            views = views[:, :, :covered, :covered]  # (views, 3, covered, covered), base view first
            tiling = None if self.single_view(inputs, image) else self.tiling(inputs, image)
            if tiling is None or tiling.empty:
                pictures.append(views[0])
                continue
            (down, across), (top, left, height, width), _ = tiling
            tiles = views[1 : 1 + down * across]
            whole = joined_tiles(tiles, down, across)
            pictures.append(whole[:, top * p : (top + height) * p, left * p : (left + width) * p])
        return pictures


class LlavaOnevisionAdapter(LlavaNextAdapter):
    """LLaVA-OneVision: many tiles, shrunk to a maximum; several images in a prompt are overviews alone."""

    def single_view(self, inputs: Mapping[str, Any], image: int) -> bool:
        numbers = inputs.get("batch_num_images")
        if numbers is None:
            return False
        return [n != 1 for n in torch.as_tensor(numbers).tolist() for _ in range(n)][image]

    def shrunk(self, height: int, width: int, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """Return the token grid shrunk to the number of tiles that `anyres_max_<n>` allows."""
        rule = inputs.get("vision_aspect_ratio") or self.model.config.vision_aspect_ratio
        most = int(rule.removeprefix("anyres_max_"))
        ratio = math.sqrt(height * width / (most * self.side**2))
        return (int(height // ratio), int(width // ratio)) if ratio > 1.1 else (height, width)


class Molmo2Adapter(FamilyAdapter):
    """Molmo 2: a small overview, then the picture from overlapping crops, a token after each row.

    Each cell is pooled from patches that the processor lists: `pixel_values` [crops, patches, p * p * 3],
    `image_token_pooling` [cells, pool * pool] numbers of patches, -1 for none, `image_grids` [images, 4] rows
    and columns of the overview and of the crops. All tokens of an image attend to each other.
    """

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Return the grid of the crops, whose tokens come after the overview's."""
        return [
            ((1, height, width), low * wide + torch.arange(height * width))
            for low, wide, height, width in inputs["image_grids"].tolist()
        ]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """Return each cell's patches, side by side; missing ones of the last cells are grey."""
        pixels, pooling = inputs["pixel_values"].flatten(0, 1), inputs["image_token_pooling"]
        pool, side = isqrt(pooling.shape[1]), isqrt(pixels.shape[1] // 3)
        pictures, end = [], 0
        for low, wide, height, width in inputs["image_grids"].tolist():
            start = end + low * wide
            end = start + height * width
            chosen = pooling[start:end].long()  # (H * W, pool * pool), -1 for none
            own = torch.where((chosen >= 0)[..., None], pixels[chosen.clamp_min(0)], 0)
            blocks = own.view(height, width, pool, pool, side, side, 3).permute(6, 0, 2, 4, 1, 3, 5)
            pictures.append(blocks.reshape(3, height * pool * side, width * pool * side))
        return pictures
