"""A vLLM plugin: of every image the server encodes only the cells that the question needs.

    pip install vllm . ./integrations/vllm     # in a checkout of arr-coc
    vllm serve Qwen/Qwen3-VL-8B-Instruct --hf-overrides '{"architectures": ["ARRCOCQwen3VL"]}'

vLLM calls `register` in each of its processes. The checkpoint stays as it is; without the override nothing
changes. Settings go into the same override: {"architectures": [...], "arr_coc": {"budget": 150}}.
"""

from __future__ import annotations

QWEN = {
    "ARRCOCQwen2VL": "qwen2_vl",
    "ARRCOCQwen2_5VL": "qwen2_5_vl",
    "ARRCOCQwen3VL": "qwen3_vl",
    "ARRCOCQwen3VLMoe": "qwen3_vl_moe",
    "ARRCOCQwen3_5": "qwen3_5",
    "ARRCOCQwen3_5Moe": "qwen3_5_moe",
}
GLM = {
    "ARRCOCGlm4v": "glm4v",
    "ARRCOCGlm4vMoe": "glm4v_moe",
    "ARRCOCGlmOcr": "glm_ocr",
}
GEMMA = {"ARRCOCGemma4": "gemma4"}
ARCHITECTURES = QWEN | GLM | GEMMA
"""Names for --hf-overrides, and the `model_type` of checkpoints that each is for."""


def register() -> None:
    """Tell vLLM of the architectures; their classes are imported when one is used."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from arr_coc_vllm.gemma_config import Gemma4Positions

    for module, names in (("models", QWEN), ("glm", GLM), ("gemma", GEMMA)):
        for name in names:
            ModelRegistry.register_model(name, f"arr_coc_vllm.{module}:{name}")
            # What vLLM settles by the name of an architecture, such as the precision of a recurrent state.
            stock = f"{name.removeprefix('ARRCOC')}ForConditionalGeneration"
            if stock in MODELS_CONFIG_MAP:
                MODELS_CONFIG_MAP[name] = MODELS_CONFIG_MAP[stock]
    MODELS_CONFIG_MAP["ARRCOCGemma4"] = Gemma4Positions
