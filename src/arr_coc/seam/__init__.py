"""The seam between allocations and transformers: one adapter per model family, and the code they share."""

from __future__ import annotations

import logging
from typing import Any

from transformers import PreTrainedModel

from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.compaction import (
    GESTALT,
    PAD,
    compact_columns,
    consecutive_positions,
    gather_columns,
    gestalt_columns,
    gestalt_positions,
    image_spans,
    kept_columns,
)
from arr_coc.seam.families.generic import GenericAdapter
from arr_coc.seam.families.llava import LlavaAdapter
from arr_coc.seam.families.llava_next import LlavaNextAdapter, LlavaOnevisionAdapter
from arr_coc.seam.families.qwen2_5_vl import Qwen2_5VLAdapter
from arr_coc.seam.families.qwen3_5 import Qwen3_5Adapter
from arr_coc.seam.families.qwen3_vl import Qwen3VLAdapter
from arr_coc.seam.features import PROMPT_NAMES, Compacted, Grid, Layout, VisualFeatures
from arr_coc.seam.loaded import attention_window, execution_device
from arr_coc.seam.properties import BaseProperties
from arr_coc.seam.registry import ADAPTERS, Offer, check_model_type, offers, register_family
from arr_coc.seam.self_check import self_check

logger = logging.getLogger(__name__)


def plain_model(model: Any) -> PreTrainedModel:
    """The transformers model inside the wrappers of `torch.compile` and peft.

    Adapters stay in its layers. A model compiled as a whole runs uncompiled, and a warning says so.

    Raises:
        ValueError: a peft model that learns tokens of the prompt (prompt learning), not weights of layers.
    """
    if hasattr(model, "_orig_mod"):
        logger.warning(
            "a model compiled as a whole can't be given other inputs than it was compiled for, so it runs "
            "uncompiled; compile its parts instead (model.language_model.compile())"
        )
        return plain_model(model._orig_mod)
    if not hasattr(model, "get_base_model"):
        return model
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise ValueError(
            f"{type(model).__name__} adds tokens to the prompt, which dropping tokens can't honour; wrap the "
            "model without it, or use an adapter that works in the layers, such as LoRA"
        )
    return plain_model(model.get_base_model())


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
    "PROMPT_NAMES",
    "ADAPTERS",
    "GESTALT",
    "PAD",
    "BaseProperties",
    "GenericAdapter",
    "Compacted",
    "FamilyAdapter",
    "Grid",
    "Layout",
    "Offer",
    "LlavaAdapter",
    "LlavaNextAdapter",
    "LlavaOnevisionAdapter",
    "Qwen2_5VLAdapter",
    "Qwen3VLAdapter",
    "Qwen3_5Adapter",
    "VisualFeatures",
    "adapter_for",
    "attention_window",
    "check_model_type",
    "compact_columns",
    "consecutive_positions",
    "execution_device",
    "gather_columns",
    "gestalt_columns",
    "gestalt_positions",
    "image_spans",
    "kept_columns",
    "offers",
    "plain_model",
    "register_family",
]
