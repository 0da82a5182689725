"""GLM-4V, GLM-4.5V, GLM-4.6V and GLM-OCR: as Qwen2.5-VL, with learned positions, interpolated."""

from __future__ import annotations

from arr_coc.seam.families.qwen2_5_vl import Qwen2_5VLAdapter


class Glm4vAdapter(Qwen2_5VLAdapter):
    """GLM-4V and what was made after it."""

    model_types = ("glm4v", "glm4v_moe", "glm46v", "glm_ocr")
    title = "GLM-4V, GLM-OCR"
    clips = False
