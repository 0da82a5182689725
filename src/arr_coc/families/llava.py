"""LLaVA (1.5): one square picture per image, plain positions, a CLIP-like tower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.families.cropped import CroppedAdapter
from arr_coc.seam.base import Grid, VisualFeatures
from arr_coc.seam.features import CROP_GRIDS


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
