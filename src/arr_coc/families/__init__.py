"""The families of models that arr-coc knows: a file and a line each. An import of this registers them all."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from arr_coc.families.generic import GenericAdapter
from arr_coc.families.qwen import (
    Exaone4_5Adapter,
    Glm4vAdapter,
    Glm5NextAdapter,
    PaddleOCRVLAdapter,
    Qwen2_5OmniAdapter,
    Qwen2_5VLAdapter,
    Qwen3_5Adapter,
    Qwen3OmniAdapter,
    Qwen3VLAdapter,
)
from arr_coc.families.raster import (
    Apertus1p5Adapter,
    Gemma4Adapter,
    Gemma4UnifiedAdapter,
    HunyuanVLAdapter,
    HYV4VLAdapter,
    KimiK25Adapter,
    Lfm3VLAdapter,
    Mistral3Adapter,
)
from arr_coc.families.registry import ADAPTERS, Offer, check_model_type, offers, register_family
from arr_coc.families.square import FastVLMAdapter, Gemma3Adapter, LlavaAdapter, PaliGemmaAdapter
from arr_coc.families.tiled import (
    AyaVisionAdapter,
    Cohere2VisionAdapter,
    Idefics3Adapter,
    InternVLAdapter,
    Lfm2VLAdapter,
    LlavaNextAdapter,
    LlavaOnevisionAdapter,
    MiniCPMVAdapter,
    Molmo2Adapter,
    Ovis2Adapter,
    Step3p7Adapter,
)
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.self_check import self_check

register_family(Qwen3VLAdapter)
register_family(Qwen2_5VLAdapter)
register_family(Qwen3_5Adapter)
register_family(Qwen2_5OmniAdapter)
register_family(Qwen3OmniAdapter)
register_family(Glm4vAdapter)
register_family(Glm5NextAdapter)
register_family(Exaone4_5Adapter)
register_family(PaddleOCRVLAdapter)
register_family(HYV4VLAdapter)
register_family(HunyuanVLAdapter)
register_family(Apertus1p5Adapter)
register_family(Gemma3Adapter)
register_family(Gemma4Adapter)
register_family(Gemma4UnifiedAdapter)
register_family(PaliGemmaAdapter)
register_family(InternVLAdapter)
register_family(Idefics3Adapter)
register_family(AyaVisionAdapter)
register_family(Cohere2VisionAdapter)
register_family(Lfm2VLAdapter)
register_family(Lfm3VLAdapter)
register_family(Ovis2Adapter)
register_family(Mistral3Adapter)
register_family(MiniCPMVAdapter)
register_family(Molmo2Adapter)
register_family(KimiK25Adapter)
register_family(Step3p7Adapter)
register_family(LlavaAdapter)
register_family(FastVLMAdapter)
register_family(LlavaNextAdapter)
register_family(LlavaOnevisionAdapter)


def adapter_for(model: PreTrainedModel, processor: Any = None) -> FamilyAdapter:
    """Choose the adapter of a loaded model.

    Args:
        model: a transformers image-text-to-text model with a generation head.
        processor: its processor, if at hand.

    Raises:
        ValueError: an unsupported model type, one without an adapter of its own that the generic adapter
            doesn't fit (see `self_check`), or a model without a generation head.
        ImportError: a transformers whose models take no `mm_encoder_outputs`.
    """
    if not hasattr(getattr(model, "config", None), "model_type"):
        raise ValueError(
            f"{type(model).__name__} is no transformers model: load one with "
            "AutoModelForImageTextToText.from_pretrained"
        )
    kind = model.config.model_type
    if hasattr(model, "thinker"):
        raise ValueError(
            f"{type(model).__name__} also speaks, and only the part that reads images can be given fewer "
            "tokens: wrap `model.thinker`"
        )
    if (
        isinstance(model, PreTrainedModel) and not model.can_generate()
    ):  # its type may be another in old releases
        raise ValueError(
            f"{type(model).__name__} has no generation head, so it can't answer; load the checkpoint with "
            "AutoModelForImageTextToText.from_pretrained"
        )
    if kind not in ADAPTERS:
        check_model_type(kind)
    adapter = ADAPTERS.get(kind, GenericAdapter)(model, processor)
    if kind not in ADAPTERS:
        self_check(adapter)
    return adapter


__all__ = [
    "ADAPTERS", "GenericAdapter", "Offer", "LlavaAdapter", "LlavaNextAdapter", "LlavaOnevisionAdapter",
    "Qwen2_5VLAdapter", "Qwen3VLAdapter", "Qwen3_5Adapter",
    "adapter_for", "check_model_type", "offers", "register_family",
]  # fmt: skip
