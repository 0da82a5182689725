"""Apertus 1.5: pictures of any size as codes of a visual vocabulary, a token between their rows.

A code stands for 16 x 16 px, so a picture of 1,400 px a side has 7,569. The tokens between rows are words of
the prompt and always stay. The encoder is convolutional and sees the picture whole: it isn't run on some
cells alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.seam.base import FamilyAdapter, Grid, VisualFeatures


class Apertus1p5Adapter(FamilyAdapter):
    """Apertus 1.5. Its image processor normalises to [-1, 1] and pads to the largest picture of a call."""

    model_types = ("apertus1p5",)
    title = "Apertus 1.5"
    remark = "from transformers 5.24 on; the tokens between rows, and sound, always stay"
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def cell_layout(self, inputs: Mapping[str, Any], counts: Sequence[int]) -> list[tuple[Grid, Tensor]]:
        """Every token is a cell: the picture's size in codes."""
        side = self.model.config.vision_config.spatial_scale_factor
        sizes = inputs["image_sizes"].tolist()
        grids = [(1, height // side, width // side) for height, width in sizes]
        return list(zip(grids, map(torch.arange, counts), strict=True))

    def patches(self, inputs: Mapping[str, Any], features: VisualFeatures | None = None) -> list[Tensor]:
        """The pictures, without the padding."""
        sizes = inputs["image_sizes"].tolist()
        return [picture[:, :h, :w] for picture, (h, w) in zip(inputs["pixel_values"], sizes, strict=True)]

    @property
    def name_marks(self) -> tuple[str, str]:
        """The tokens around the size in words that its processor writes before each picture."""
        tokens = self.processor.tokenizer
        return tokens.boi_token, tokens.image_wrapper_token
