"""GLM-4V, GLM-4.5V, GLM-4.6V, GLM-GA and GLM-OCR: as Qwen2.5-VL, with learned positions, interpolated.

The frames of a clip have placeholders of images; which is which stands in `mm_token_type_ids` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from arr_coc.families.qwen2_5_vl import Qwen2_5VLAdapter


class Glm4vAdapter(Qwen2_5VLAdapter):
    """GLM-4V and what was made after it."""

    model_types = ("glm4v", "glm4v_moe", "glm46v", "glm_ocr", "glmga")
    title = "GLM-4V, GLM-OCR"
    halves = False  # it shrinks by a convolution between its blocks and its merger

    def token_kinds(self, inputs: Mapping[str, Any]) -> Tensor:
        """As the processor tells them.

        Raises:
            ValueError: there is a clip, and it doesn't.
        """
        kinds = inputs.get("mm_token_type_ids")
        if kinds is not None:
            return kinds.int()
        if inputs.get("pixel_values_videos") is not None:
            raise ValueError(
                "mm_token_type_ids are missing, and the placeholders of a clip are those of images: pass all "
                "that the processor returns"
            )
        return super().token_kinds(inputs)
