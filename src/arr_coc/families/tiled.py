"""Families whose processor cuts a picture into square tiles and adds a small view of the whole behind them.

The cells are those of all tiles in one raster; the view of the whole, and every token that names a tile,
always stay. A picture that was not cut has the cells of its one view.

The vision tower reads one view at a time, so a tile's tokens depend on no other tile. Some cells alone are
therefore encoded by whole tiles: those that hold a kept cell, and the views of the whole.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from arr_coc.families.tiles import arranged, joined, raster
from arr_coc.seam.base import FamilyAdapter, Grid, Layout, VisualFeatures
from arr_coc.seam.compaction import image_spans
from arr_coc.seam.features import handing_back
from arr_coc.seam.misfits import REMEDY
from arr_coc.seam.partial import numbered_cells


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
