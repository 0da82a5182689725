"""GLM-4V and GLM-OCR in the plugin: as Qwen's, with other words around a turn and another tower.

GLM-4.1V and GLM-4.6V-Flash are `ARRCOCGlm4v`'s, GLM-4.5V is `ARRCOCGlm4vMoe`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers.models.glm4v.image_processing_glm4v import smart_resize
from vllm.model_executor.models import glm4_1v, glm_ocr
from vllm.multimodal.parse import ImageProcessorItems

from arr_coc_vllm.models import Selecting, registered
from arr_coc_vllm.processor import SelectingProcessor
from arr_coc_vllm.towers import glm_metadata, glm_ocr_tokens

ROLES = {
    "<|system|>": "system",
    "<|user|>": "user",
    "<|assistant|>": "assistant",
    "<|observation|>": "tool",
}


class GlmProcessor(SelectingProcessor, glm4_1v.Glm4vMultiModalProcessor):
    """For GLM-4V and GLM-OCR."""

    turn = None
    roles = ROLES
    media = (
        "video_token_id",
        "image_start_token_id",
        "image_end_token_id",
        "video_start_token_id",
        "video_end_token_id",
    )
    switches = ("/nothink",)

    def _grid(self, images: ImageProcessorItems, i: int, kwargs: Mapping[str, object]) -> tuple[int, int]:
        width, height = images.get_image_size(i)
        vision, frames = self.info.get_hf_config().vision_config, 2
        cell = vision.patch_size * vision.spatial_merge_size
        size: Any = self.info.ctx.get_merged_mm_kwargs(kwargs).get("size")
        size = self.info.get_image_processor().size if size is None else size
        try:  # numbers of px in a picture, whatever their names say
            low, high = int(size["shortest_edge"]), int(size["longest_edge"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"mm_processor_kwargs has size {size!r:.80}: give numbers as shortest_edge and longest_edge"
            ) from None
        rows, columns = smart_resize(frames, height, width, frames, cell, low, high)
        return rows // cell, columns // cell


def glm(model: type) -> type:
    """A decorator that gives a model of GLM its processor."""
    put = registered(GlmProcessor, glm4_1v.Glm4vProcessingInfo, glm4_1v.Glm4vDummyInputsBuilder)
    return put(model)


@glm
class ARRCOCGlm4v(Selecting, glm4_1v.Glm4vForConditionalGeneration):
    """GLM-4V, dense."""

    tower_metadata = staticmethod(glm_metadata)


@glm
class ARRCOCGlm4vMoe(Selecting, glm4_1v.Glm4vMoeForConditionalGeneration):
    """GLM-4V with a mixture of experts."""

    tower_metadata = staticmethod(glm_metadata)


@glm
class ARRCOCGlmOcr(Selecting, glm_ocr.GlmOcrForConditionalGeneration):
    """GLM-OCR."""

    tower_metadata = staticmethod(glm_metadata)

    def encode(self, pixels: Any, grids: Any, metadata: dict[str, Any]) -> Tensor:
        return glm_ocr_tokens(self.visual, pixels, metadata)
