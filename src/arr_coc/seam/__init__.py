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
from arr_coc.seam.features import PROMPT_NAMES, Compacted, Grid, Layout, VisualFeatures
from arr_coc.seam.llava import LlavaAdapter
from arr_coc.seam.llava_next import LlavaNextAdapter, LlavaOnevisionAdapter
from arr_coc.seam.loaded import attention_window, execution_device
from arr_coc.seam.properties import BaseProperties
from arr_coc.seam.qwen2_5_vl import Qwen2_5VLAdapter
from arr_coc.seam.qwen3_5 import Qwen3_5Adapter
from arr_coc.seam.qwen3_vl import Qwen3VLAdapter

logger = logging.getLogger(__name__)

ADAPTERS: dict[str, type[FamilyAdapter]] = {}
"""Adapters by `config.model_type`."""


def register_family(adapter: type[FamilyAdapter], *model_types: str) -> None:
    """Support a family of models.

    Args:
        adapter: its adapter.
        model_types: each a `config.model_type` that it serves; none: the adapter's own `model_types`.

    Raises:
        ValueError: the adapter lacks something that a family must say, there is no model type, or one is
            taken by another adapter.
    """
    kinds = model_types or getattr(adapter, "model_types", ())
    names = ("visual_names", *sorted(adapter.__abstractmethods__))
    if lacks := [name for name in names if name in adapter.__abstractmethods__ or not hasattr(adapter, name)]:
        raise ValueError(f"{adapter.__name__} says nothing of {', '.join(lacks)}: add that to the class")
    if not kinds or isinstance(kinds, str):
        raise ValueError(f"{adapter.__name__} has model_types {kinds!r}: use a tuple with at least one name")
    if taken := [kind for kind in kinds if ADAPTERS.get(kind, adapter) is not adapter]:
        raise ValueError(
            f"model type {taken[0]!r} is served by {ADAPTERS[taken[0]].__name__} already; remove that first "
            f"with ADAPTERS.pop({taken[0]!r})"
        )
    ADAPTERS.update(dict.fromkeys(kinds, adapter))


register_family(Qwen3VLAdapter)
register_family(Qwen2_5VLAdapter)
register_family(Qwen3_5Adapter)
register_family(LlavaAdapter)
register_family(LlavaNextAdapter)
register_family(LlavaOnevisionAdapter)


def check_model_type(model_type: str) -> None:
    """Raise a ValueError that names an unsupported model type and lists the supported ones."""
    if model_type not in ADAPTERS:
        raise ValueError(
            f"model type {model_type!r} is not supported; supported are {', '.join(sorted(ADAPTERS))} "
            "(a new family is one FamilyAdapter and `arr_coc.seam.register_family`)"
        )


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
        ValueError: an unsupported model type, or a model without a generation head.
        ImportError: a transformers whose models take no `mm_encoder_outputs`.
    """
    if not hasattr(getattr(model, "config", None), "model_type"):
        raise ValueError(
            f"{type(model).__name__} is no transformers model: load one with "
            "AutoModelForImageTextToText.from_pretrained"
        )
    check_model_type(model.config.model_type)
    adapter = ADAPTERS[model.config.model_type](model, processor)
    if not model.can_generate():
        raise ValueError(
            f"{type(model).__name__} has no generation head, so it can't answer; load the checkpoint with "
            "AutoModelForImageTextToText.from_pretrained"
        )
    return adapter


__all__ = [
    "PROMPT_NAMES",
    "ADAPTERS",
    "GESTALT",
    "PAD",
    "BaseProperties",
    "Compacted",
    "FamilyAdapter",
    "Grid",
    "Layout",
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
    "plain_model",
    "register_family",
]
