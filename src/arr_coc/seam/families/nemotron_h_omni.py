"""Nemotron 3 Nano Omni: pictures of any size in patches row by row, on a language model with Mamba layers.

A recurrent state has no mask, and its attention no positions: with some tokens dropped there is no masked
equivalent to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arr_coc.seam.families.kimi_k25 import KimiK25Adapter


class NemotronHOmniAdapter(KimiK25Adapter):
    """Nemotron 3 Nano Omni, whose placeholders of images are those of clips too."""

    model_types = ("nemotron_h_omni",)
    title = "Nemotron 3 Nano Omni"
    remark = "sound always stays; its recurrent layers have no masked equivalent of a dropped token"
    recurrent = True
    casts = True
    mean = (0.48145466, 0.4578275, 0.40821073)
    std = (0.26862954, 0.26130258, 0.27577711)

    @property
    def merge(self) -> int:
        """Patches along each side of a cell."""
        return round(1 / self.model.config.downsample_ratio)

    def grids(self, inputs: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Per image its rows and columns of patches."""
        return [(height, width) for height, width in inputs["image_grid_hw"].tolist()]
