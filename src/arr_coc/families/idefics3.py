"""Idefics3 and SmolVLM: square tiles of a picture between row and column tokens, then a view of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import transformers
from torch import Tensor

from arr_coc.families.registry import takes_any_number
from arr_coc.families.tiled import TiledAdapter
from arr_coc.families.tiles import numbers_by_last


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
