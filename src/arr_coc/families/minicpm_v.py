"""MiniCPM-V: a view of the whole, then, of a large picture, the slices that it was cut into, row by row.

The cells are those of all slices in one raster; the view of the whole ahead of them always stays. A picture
that was not cut has the cells of its one view. The prompt says how slices lie: those of a row have no more
than their two marks between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arr_coc.families.tiles import by_gaps, placeholder_runs, run_spans
from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.misfits import REMEDY


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
