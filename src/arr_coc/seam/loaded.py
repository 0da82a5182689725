"""Facts of a loaded model: where its calls run, and how far back its language model's windows reach."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

WINDOWED = (("sliding_attention", "sliding_window"), ("chunked_attention", "attention_chunk_size"))
"""Kinds of layers that see only some columns back, and the setting that says how many."""


def execution_device(model: PreTrainedModel) -> torch.device:
    """Where the calls of a model run.

    Weights that accelerate keeps elsewhere (offloaded to the CPU's memory or the disk) are on "meta" between
    calls, and so `model.device` says; the hooks that fetch them know the device. A model that is on "meta"
    without such hooks has no weights, and its device is "meta".
    """
    if model.device.type != "meta":
        return model.device
    for module in model.modules():
        hook = getattr(module, "_hf_hook", None)
        for part in getattr(hook, "hooks", [hook]):
            if getattr(part, "execution_device", None) is not None:
                return torch.device(part.execution_device)
    return model.device


def attention_window(config: Any) -> int | None:
    """Columns that the narrowest layer of a language model sees, itself included; None: all see everything.

    Args:
        config: of a loaded model, whose text configuration counts.
    """
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    widths = [getattr(text, name, None) for kind, name in WINDOWED if kinds is None or kind in kinds]
    return min((width for width in widths if width), default=None)
