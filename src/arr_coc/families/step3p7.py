"""Step 3.7: windows of a large picture row by row, then a square view of the whole.

The cells are those of all windows in one raster; the view of the whole behind them always stays. A picture
that was not cut has the cells of its one view, which is square whatever the picture's shape. The prompt says
how windows lie: those of a row have no more than their two marks between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from arr_coc.families.tiles import by_gaps, joined, placeholder_runs, raster, run_spans
from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.misfits import REMEDY


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
