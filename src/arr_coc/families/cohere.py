"""Aya Vision and Command A Vision: square tiles, then a view of the whole, each a run of placeholders.

Aya names each in ordinary text before it ("TILE_1", "TILE_GLOBAL"); Command A ends each with a line break, so
that only the first of an image follows another token.
"""

from __future__ import annotations

from torch import Tensor

from arr_coc.families.tiled import TiledAdapter
from arr_coc.families.tiles import numbers_by_first, numbers_by_last


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
