"""The seam between allocations and transformers: drop visual tokens from an unpatched model."""

from __future__ import annotations

import logging
from typing import Any

from transformers import PreTrainedModel

from arr_coc.seam.assembly import (
    GESTALT,
    PAD,
    PROMPT_NAMES,
    Compacted,
    Grid,
    Layout,
    VisualFeatures,
    compact_columns,
    consecutive_positions,
    gather_columns,
    gestalt_columns,
    gestalt_positions,
    image_spans,
    kept_columns,
)
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.loaded import BaseProperties, attention_window, execution_device

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


__all__ = [
    "PROMPT_NAMES",
    "GESTALT",
    "PAD",
    "BaseProperties",
    "Compacted",
    "FamilyAdapter",
    "Grid",
    "Layout",
    "VisualFeatures",
    "attention_window",
    "compact_columns",
    "consecutive_positions",
    "execution_device",
    "gather_columns",
    "gestalt_columns",
    "gestalt_positions",
    "image_spans",
    "kept_columns",
    "plain_model",
]
