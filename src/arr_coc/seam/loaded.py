"""Facts of a loaded model: where its calls run, and how far back its language model's windows reach."""

from __future__ import annotations

import logging
from typing import Any

import torch
from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

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


def warn_of_window(window: int | None, length: int, warned: set[int]) -> None:
    """Say once that tokens are dropped from a prompt that is longer than a window.

    Args:
        window: columns that it holds; None: there is none.
        length: columns of the whole prompt.
        warned: windows that were spoken of; this one is added.
    """
    if window is None or length <= window or window in warned:
        return
    warned.add(window)
    logger.warning(
        "the prompt has %d tokens and some layers of the language model see %d: their windows count tokens, "
        "so with some dropped they reach further back than in the whole prompt",
        length,
        window,
    )
