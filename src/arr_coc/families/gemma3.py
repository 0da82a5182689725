"""Gemma 3: a square of cells for each picture and each crop of it, whatever their shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures


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
