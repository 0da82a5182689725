"""Families whose processor cuts a picture into square tiles and adds a small view of the whole behind them.

The cells are those of all tiles in one raster; the view of the whole, and every token that names a tile,
always stay. A picture that was not cut has the cells of its one view.

The vision tower reads one view at a time, so a tile's tokens depend on no other tile. Some cells alone are
therefore encoded by whole tiles: those that hold a kept cell, and the views of the whole.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import isqrt
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from arr_coc.families.registry import takes_any_number
from arr_coc.families.square import LlavaAdapter
from arr_coc.families.tiles import (
    arranged,
    arrangement,
    by_gaps,
    joined,
    numbers_by_first,
    numbers_by_last,
    placeholder_groups,
    placeholder_runs,
    raster,
    run_spans,
)
from arr_coc.seam.assembly import Layout, VisualFeatures, handing_back, image_spans
from arr_coc.seam.base import FamilyAdapter, Grid
from arr_coc.seam.partial import numbered_cells
from arr_coc.seam.pixels import REMEDY, to_picture


class TiledAdapter(FamilyAdapter):
    """Base class of the adapters of families in tiles: they say how large a cell is, and what is a view."""

    remark = "the view of the whole, behind the tiles, always stays"
    by_tiles = True

    def __init__(self, model: Any, processor: Any = None) -> None:
        super().__init__(model, processor)
        # How tiles lie is read off their pixels, which takes a while, and several times in a call: kept as
        # long as the tensor of the pixels lives, and as nobody writes into it.
        self._shapes: Any = WeakTensorKeyDictionary()

    @property
    @abstractmethod
    def cell_px(self) -> int:
        """Px along each side of a cell."""

    @abstractmethod
    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        """How many tiles and views of the whole each image of the prompts has.

        Args:
            input_ids: [B, S].
            views: those of all images, as `views` returns them.
        """

    def views(self, inputs: Mapping[str, Any]) -> Tensor:
        """The tiles and views of the whole of all images, in order: [n, 3, s, s]."""
        return inputs["pixel_values"]

    def only(self, inputs: Mapping[str, Any], chosen: Tensor) -> dict[str, Any]:
        """Inputs for `encode` with some views alone.

        Args:
            inputs: processor inputs with images.
            chosen: long [m], numbers of views.
        """
        return dict(inputs) | {"pixel_values": self.views(inputs)[chosen]}

    def side(self, inputs: Mapping[str, Any]) -> int:
        """Cells along each side of a tile."""
        return self.views(inputs).shape[-1] // self.cell_px

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """The tokens of each image's tiles and view of the whole, however many the encoder took together."""
        return [number * self.side(inputs) ** 2 for number in self._numbers(inputs)]

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int]:
        """As `token_counts`.

        Raises:
            ValueError: the prompt's placeholders are not those of the views.
        """
        ids, views = inputs["input_ids"], self.views(inputs)
        image_spans(ids == self.image_token_id, [self.side(inputs) ** 2] * len(views))
        if (numbers := self._numbers(inputs)) and sum(numbers) == len(views):
            return self.token_counts(inputs, ())
        raise ValueError(f"the prompt has images of {numbers} tiles and views for {len(views)}; {REMEDY}")

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The raster of all tiles, the view of the whole left out."""
        side = self.side(inputs)
        return [
            ((1, rows * side, columns * side), raster(rows, columns, side))
            for rows, columns in self._arrangements(inputs)
        ]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The tiles joined."""
        views = self.views(inputs).split(self._numbers(inputs))
        shapes = self._arrangements(inputs)
        return [
            joined(own[: rows * columns], rows, columns)
            for own, (rows, columns) in zip(views, shapes, strict=True)
        ]

    # ---- encoding some tiles alone --------------------------------------------------------------------

    def layout(self, inputs: Mapping[str, Any]) -> Layout:
        """Computed from the prompt and the pixels."""
        counts = list(self.token_counts(inputs, ()))
        grids, cells = zip(*self.cell_layout(inputs, counts), strict=True)
        device = inputs["pixel_values"].device
        return Layout(counts, list(grids), [index.to(device) for index in cells])

    def encode_cells(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> VisualFeatures:
        """Encode the tiles that hold a kept cell, and the views of the whole.

        Returns:
            The kept tokens of each image: those of the kept cells and of the view of the whole, in order.
        """
        layout, unit = self.layout(inputs), self.side(inputs) ** 2
        if any(len(indices) for indices in keep):
            numbered_cells(layout, keep)  # refuses what are no cells
        indices = layout.tokens_to_keep(keep)
        kept = [len(index) for index in indices]
        if kept == layout.counts:  # all at once, for the stock model's own results
            return replace(self.features(inputs), cells=[])
        if not sum(kept):
            raise ValueError("no cell is kept in any image; keep at least one")
        starts = accumulate(layout.counts[:-1], initial=0)
        tokens = torch.cat([index + start for index, start in zip(indices, starts, strict=True)])
        chosen, place = (tokens // unit).unique(return_inverse=True)
        output = self.encode(self.only(inputs, chosen))
        encoded = torch.cat(list(output.pooler_output))[place * unit + tokens % unit]
        packed = isinstance(output.pooler_output, Tensor)
        return VisualFeatures(list(encoded.split(kept)), [], layout.grids, [], handing_back(output), packed)

    def other_tokens(self, inputs: Mapping[str, Any], layout: Layout) -> VisualFeatures | None:
        """The views of the whole; None where no image has one."""
        if layout.counts == layout.sizes:
            return None
        return self.encode_cells(inputs, [cells[:0] for cells in layout.cells])

    def views_encoded(self, inputs: Mapping[str, Any], keep: Sequence[Tensor]) -> tuple[int, int]:
        """The views that hold a kept token, and all."""
        unit, layout = self.side(inputs) ** 2, self.layout(inputs)
        views = [len((index // unit).unique()) for index in layout.tokens_to_keep(keep)]
        return sum(views), sum(layout.counts) // unit

    def coarse(self, inputs: Mapping[str, Any], cells: int | Sequence[int] = 256) -> dict[str, Any]:
        """The view of the whole of each image, or its one view: of a tile's cells, whatever `cells`."""
        ends = torch.tensor(self._numbers(inputs)).cumsum(0) - 1
        names = [name for name in self.visual_names if inputs.get(name) is not None]
        some = self.only(inputs, ends.to(inputs["pixel_values"].device))
        return {name: some[name] for name in names}

    def _numbers(self, inputs: Mapping[str, Any]) -> list[int]:
        """How many views each image has; without a prompt each view is an image, as in a coarse view."""
        views = self.views(inputs)
        ids = inputs.get("input_ids")
        return [1] * len(views) if ids is None else self.numbers(ids, views)

    def _arrangements(self, inputs: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Per image the rows and columns of its tiles."""
        pixels, numbers = inputs["pixel_values"], self._numbers(inputs)
        state = (numbers, 0 if pixels.is_inference() else pixels._version)
        memo = self._shapes.get(pixels)
        if memo is None or memo[0] != state:
            memo = state, arranged(self.views(inputs), numbers)
            self._shapes[pixels] = memo
        return memo[1]


# Idefics3 and SmolVLM: square tiles of a picture between row and column tokens, then a view of the whole.


class Idefics3Adapter(TiledAdapter):
    """Idefics3 and SmolVLM."""

    model_types = ("idefics3", "smolvlm")
    title = "Idefics3, SmolVLM"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def __init__(self, model: Any, processor: Any = None) -> None:
        super().__init__(model, processor)
        if not takes_any_number(type(model)):
            raise ImportError(
                f"{model.config.model_type!r} takes encoded images in whole blocks alone in transformers "
                f"{transformers.__version__}, so that no token of them can be dropped; install a newer one"
            )

    @property
    def cell_px(self) -> int:
        """Px along each side of a cell."""
        return self.model.config.vision_config.patch_size * self.model.config.scale_factor

    def views(self, inputs: Mapping[str, Any]) -> Tensor:
        """Without the black ones that fill up the rows of a batch."""
        views = inputs["pixel_values"].flatten(0, 1)
        return views[views.flatten(1).any(1)]

    def only(self, inputs: Mapping[str, Any], chosen: Tensor) -> dict[str, Any]:
        """As one row of a batch."""
        filled = inputs["pixel_values"].flatten(0, 1).flatten(1).any(1)
        names = [name for name in ("pixel_values", "pixel_attention_mask") if inputs.get(name) is not None]
        return dict(inputs) | {name: inputs[name].flatten(0, 1)[filled][chosen][None] for name in names}

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        """As the row and column tokens before them say."""
        return numbers_by_last(input_ids, self.image_token_id)


# InternVL: square tiles of a picture, then a view of the whole, between one start and one end token.


class InternVLAdapter(TiledAdapter):
    """InternVL 2.5, 3 and 3.5 in transformers' own format, and Qianfan-OCR."""

    model_types = ("internvl", "qianfan_ocr")
    title = "InternVL"
    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)

    @property
    def cell_px(self) -> int:
        """Px along each side of a cell."""
        return int(self.model.config.vision_config.patch_size[0] / self.model.config.downsample_ratio)

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        """As the lengths of the prompt's runs of placeholders: the tiles of an image follow each other."""
        counts = placeholder_runs(input_ids == self.image_token_id)
        length = sum(counts) // len(views)  # tokens of a tile
        return [count // length for count in counts]


# Aya Vision and Command A Vision: square tiles, then a view of the whole, each a run of placeholders.
#
# Aya names each in ordinary text before it ("TILE_1", "TILE_GLOBAL"); Command A ends each with a line
# break, so
# that only the first of an image follows another token.


class AyaVisionAdapter(TiledAdapter):
    """Aya Vision, whose language model has an attention window in most layers."""

    model_types = ("aya_vision",)
    title = "Aya Vision"
    remark = f"{TiledAdapter.remark}; dropping equals masking while the prompt fits the attention window"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    @property
    def cell_px(self) -> int:
        """Px along each side of a cell."""
        return self.model.config.vision_config.patch_size * self.model.config.downsample_factor

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        """As the names before them say."""
        return numbers_by_last(input_ids, self.image_token_id)

    @property
    def name_marks(self) -> tuple[str, str] | None:
        """The tokens that begin and end an image, whose tiles have names."""
        return self.processor.start_of_img_token, self.processor.end_of_img_token


class Cohere2VisionAdapter(AyaVisionAdapter):
    """Command A Vision, likewise."""

    model_types = ("cohere2_vision",)
    title = "Command A Vision"

    @property
    def name_marks(self) -> None:
        """None: its tiles have no names."""
        return None

    def numbers(self, input_ids: Tensor, views: Tensor) -> list[int]:
        """As the token that begins an image says."""
        return numbers_by_first(input_ids, self.image_token_id)


# Ovis2: a view of the whole, then square tiles of the picture; a picture that is not cut has the one view.
#
# Tokens around the views are words of the prompt whose embeddings the encoder gives with its features. They
# and the view of the whole always stay.


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


# LFM2-VL: square tiles of a large picture, then a view of the whole in its own shape; else one view.
#
# Most layers of its language model are short convolutions over the tokens that are left: they mix
# neighbours,
# and with some tokens dropped these are others. With all tokens kept, results are the stock model's.


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


# Step 3.7: windows of a large picture row by row, then a square view of the whole.
#
# The cells are those of all windows in one raster; the view of the whole behind them always stays. A picture
# that was not cut has the cells of its one view, which is square whatever the picture's shape. The prompt
# says
# how windows lie: those of a row have no more than their two marks between them.


class Step3p7Adapter(FamilyAdapter):
    """Step 3.7."""

    model_types = ("step3p7",)
    title = "Step 3.7"
    remark = "the view of the whole, behind the windows, always stays"
    needed = ("num_local_patches",)

    def early_counts(self, inputs: Mapping[str, Any]) -> None:
        """None: the encoder says.

        Raises:
            ValueError: the prompt has more or fewer views than the pixels, or others.
        """
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
        """The raster of all windows, or of the one view."""
        layout: list[tuple[Grid, Tensor]] = []
        for rows, columns, tokens in self.windows(inputs):
            side = isqrt(tokens)
            layout.append(((1, rows * side, columns * side), raster(rows, columns, side)))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The windows joined, or the one view."""
        pictures, end = [], 0
        numbers = torch.as_tensor(inputs["num_local_patches"]).tolist()
        for view, number, (rows, columns, _) in zip(
            inputs["pixel_values"], numbers, self.windows(inputs), strict=True
        ):
            end += number
            own = inputs["pixel_values_local"][end - number : end] if number else view[None]
            pictures.append(joined(own, rows, columns))
        return pictures

    def windows(self, inputs: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """Per picture the rows and columns of its windows, and the tokens of one; a view alone is one."""
        numbers, windows = iter(torch.as_tensor(inputs["num_local_patches"]).tolist()), []
        for ids in inputs["input_ids"]:
            spans = run_spans(ids == self.image_token_id)
            while spans:
                number = next(numbers)
                own = spans[: number or 1]
                windows.append((*by_gaps(own), own[0][1] - own[0][0]))
                spans = spans[number + 1 :]
        return windows


# MiniCPM-V: a view of the whole, then, of a large picture, the slices that it was cut into, row by row.
#
# The cells are those of all slices in one raster; the view of the whole ahead of them always stays. A
# picture
# that was not cut has the cells of its one view. The prompt says how slices lie: those of a row have no more
# than their two marks between them.


class Slices(NamedTuple):
    """How a picture was cut: rows and columns of slices, tokens and (h, w) patches of each of its views."""

    rows: int
    columns: int
    tokens: list[int]
    sizes: list[tuple[int, int]]


class MiniCPMVAdapter(FamilyAdapter):
    """MiniCPM-V 4.6 and 4.7, whose language model is Qwen3.5's."""

    model_types = ("minicpmv4_6", "minicpmv4_7")
    title = "MiniCPM-V"
    remark = "the view of the whole, ahead of the slices, always stays; recurrent as Qwen3.5"
    recurrent = True
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def token_counts(self, inputs: Mapping[str, Any], lengths: Sequence[int]) -> Sequence[int]:
        """The tokens of each picture's views."""
        return [sum(picture.tokens) for picture in self.slices(inputs)]

    def early_counts(self, inputs: Mapping[str, Any]) -> Sequence[int]:
        """As `token_counts`."""
        return self.token_counts(inputs, ())

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The raster of all slices, or of the one view."""
        layout: list[tuple[Grid, Tensor]] = []
        for rows, columns, tokens, sizes in self.slices(inputs):
            height, width = sizes[-1]
            merge = isqrt(height * width // tokens[-1])  # patches along each side of a cell
            high, wide = height // merge, width // merge
            places = torch.arange(rows * columns * high * wide).view(rows, columns, high, wide)
            cells = sum(tokens) - places.numel() + places.transpose(1, 2).reshape(-1)
            layout.append(((1, rows * high, columns * wide), cells))
        return layout

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The slices joined, or the one view."""
        pixels = inputs["pixel_values"][0]  # patches side by side: (3, p, n * p)
        side, end, pictures = pixels.shape[1], 0, []
        for rows, columns, _, sizes in self.slices(inputs):
            height, width = sizes[-1]
            end += sum(h * w for h, w in sizes) * side
            own = pixels[..., end - rows * columns * height * width * side : end]
            blocks = own.view(3, side, rows, columns, height, width, side).permute(0, 2, 4, 1, 3, 5, 6)
            pictures.append(blocks.reshape(3, rows * height * side, columns * width * side))
        return pictures

    def slices(self, inputs: Mapping[str, Any]) -> list[Slices]:
        """How each picture was cut, as the prompt says.

        Raises:
            ValueError: slices that make no raster of one size, or more or fewer views than the pixels have.
        """
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
                rows, columns = by_gaps(runs[left + 1 : right] or runs[left:right])
                pictures.append(Slices(rows, columns, tokens, own))
        return pictures

    @property
    def name_marks(self) -> tuple[str, str]:
        """The tokens around the number that its processor writes before each picture."""
        tokens = self.processor.tokenizer
        return tokens.image_id_start_token, tokens.image_id_end_token


# LLaVA-NeXT and LLaVA-OneVision: a base view, then the picture in tiles, a newline token after each row.
#
# The cells are those of the tiled picture, unpadded. The base view (a coarse view of the whole) and the
# newline tokens (which end the rows) are always kept and are not counted. An image that comes as a base view
# alone (OneVision with several images in a prompt), or so thin that its tiles hold no whole patch of it, has
# the cells of that view.


class Tiling(NamedTuple):
    """The place of one picture in its tiles, in patches."""

    tiles: tuple[int, int]  # (down, across)
    window: tuple[int, int, int, int]  # top, left, height, width of the unpadded picture
    grid: tuple[int, int]  # (H, W) of its tokens; smaller than the window if the model shrinks it

    @property
    def empty(self) -> bool:
        """Whether the picture is too thin for a patch: a side of its grid is 0."""
        return 0 in self.grid


class LlavaNextAdapter(LlavaAdapter):
    """LLaVA-NeXT (LLaVA-1.6)."""

    model_types = ("llava_next",)
    title = "LLaVA-NeXT"
    remark = "reads fine tiles by itself, all of them; base view and newline tokens always stay"
    by_crops = False  # its processor cuts tiles itself
    by_cells = False  # its tower sees tiles, and the whole picture besides

    def single_view(self, inputs: Mapping[str, Any], image: int) -> bool:
        """Whether the image comes as its base view alone."""
        return False

    def shrunk(self, height: int, width: int, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """The token grid of a picture of height x width patches."""
        return height, width

    def tiling(self, inputs: Mapping[str, Any], image: int) -> Tiling:
        """The tiling of one picture, by the model's own rules."""
        config, side = self.model.config, self.side
        size = [int(n) for n in inputs["image_sizes"][image]]
        # Imported here: reading this family's model takes as long as all adapters do.
        from transformers.models.llava_next.modeling_llava_next import (
            get_anyres_image_grid_shape,
            unpad_image,
        )

        tiles = get_anyres_image_grid_shape(
            size, config.image_grid_pinpoints, config.vision_config.image_size
        )
        full_height, full_width = tiles[0] * side, tiles[1] * side
        numbered = torch.arange(full_height * full_width).view(1, full_height, full_width)
        inside = unpad_image(numbered, size)[0]
        height, width = inside.shape
        top, left = divmod(int(inside[0, 0]), full_width) if inside.numel() else (0, 0)
        return Tiling(tiles, (top, left, height, width), self.shrunk(height, width, inputs))

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The tiled picture's grid, its cells after the base view and between newline tokens."""
        base = self.side**2
        layout: list[tuple[Grid, Tensor]] = []
        for image, count in enumerate(counts):
            expected, grid, cells = base + 1, (1, self.side, self.side), torch.arange(base)
            if not self.single_view(inputs, image):
                tiling = self.tiling(inputs, image)
                height, width = tiling.grid
                expected = base + height * (width + 1)
                if not tiling.empty:
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
        """The tiles joined, without the padding."""
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
            tiles = views[1 : 1 + down * across].view(down, across, 3, covered, covered)
            whole = tiles.permute(2, 0, 3, 1, 4).reshape(3, down * covered, across * covered)
            pictures.append(whole[:, top * p : (top + height) * p, left * p : (left + width) * p])
        return pictures


class LlavaOnevisionAdapter(LlavaNextAdapter):
    """LLaVA-OneVision: many tiles, shrunk to a maximum; of several images in a prompt, base views alone."""

    model_types = ("llava_onevision",)
    title = "LLaVA-OneVision"
    visual_names = (*LlavaNextAdapter.visual_names, "vision_aspect_ratio", "batch_num_images")
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def single_view(self, inputs: Mapping[str, Any], image: int) -> bool:
        """Whether the image shares its prompt with others."""
        numbers = inputs.get("batch_num_images")
        if numbers is None:
            return False
        return [n != 1 for n in torch.as_tensor(numbers).tolist() for _ in range(n)][image]

    def shrunk(self, height: int, width: int, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """The token grid shrunk to the number of tiles that `anyres_max_<n>` allows."""
        rule = inputs.get("vision_aspect_ratio") or self.model.config.vision_aspect_ratio
        most = int(rule.removeprefix("anyres_max_"))
        ratio = math.sqrt(height * width / (most * self.side**2))
        return (int(height // ratio), int(width // ratio)) if ratio > 1.1 else (height, width)


# Molmo 2: a small view of the whole, then the picture from overlapping crops, a token after each row.
#
# The cells are those of the crops, each pooled from patches that the processor lists. The tokens of the
# view of
# the whole and those that end rows always stay. All tokens of an image read each other, the kept ones too.


class Molmo2Adapter(FamilyAdapter):
    """Molmo 2. Dropping a token equals masking it, though tokens of an image read each other."""

    model_types = ("molmo2",)
    title = "Molmo 2"
    remark = "the view of the whole and the tokens after rows always stay"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """The grid of the crops, behind the view of the whole."""
        return [
            ((1, height, width), low * wide + torch.arange(height * width))
            for low, wide, height, width in inputs["image_grids"].tolist()
        ]

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The patches from which each cell is pooled, side by side; grey where the last ones lack some."""
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
