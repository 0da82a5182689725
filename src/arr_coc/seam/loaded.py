"""Properties of a loaded model: the device of its calls, its narrowest attention window, its recurrence."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

WINDOWED = (
    ("sliding_attention", "sliding_window"),
    ("chunked_attention", "attention_chunk_size"),
    ("indexed_attention", "index_topk"),
    ("indexed_attention", "indexer_budget"),
)
"""Kinds of layers that read so many columns at most, near or picked, and the setting that says how many."""


def execution_device(model: PreTrainedModel) -> torch.device:
    """The device on which the calls of a model run.

    Weights that accelerate keeps elsewhere (offloaded to the CPU's memory or the disk) are on "meta" between
    calls, and so is `model.device`; the hooks that fetch them hold the device. A model that is on "meta"
    without such hooks has no weights, and its device is "meta".
    """
    if model.device.type != "meta":
        return model.device
    return next(filter(None, map(hook_device, model.modules())), model.device)


def hook_device(module: nn.Module) -> torch.device | None:
    """The device to which accelerate's hook fetches the weights of a module; None: it has no such hook."""
    hook = getattr(module, "_hf_hook", None)
    for part in getattr(hook, "hooks", [hook]):
        if getattr(part, "execution_device", None) is not None:
            return torch.device(part.execution_device)
    return None


def attention_window(config: Any) -> int | None:
    """The fewest columns that a layer of a language model reads at most, itself included; None: no limit.

    Args:
        config: configuration of a loaded model; its text part is read.
    """
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    widths = [getattr(text, name, None) for kind, name in WINDOWED if kinds is None or kind in kinds]
    return min((width for width in widths if width), default=None)


def has_recurrence(config: Any) -> bool:
    """Whether some layers of a language model read the prompt with a state or a convolution.

    Args:
        config: configuration of a loaded model; its text part is read.
    """
    kinds = getattr(config.get_text_config(), "layer_types", None) or ()
    return any(not kind.endswith("attention") or kind.startswith("linear") for kind in kinds)


def warn_of_window(window: int | None, length: int, warned: set[int]) -> None:
    """Log a warning, once, that tokens are dropped from a prompt that is longer than an attention window.

    Args:
        window: its width in columns; None: there is none.
        length: columns of the whole prompt.
        warned: windows that were warned of; this one is added.
    """
    if window is None or length <= window or window in warned:
        return
    warned.add(window)
    logger.warning(
        "the prompt has %d tokens and some layers of the language model see %d: they count tokens, so "
        "with some dropped they reach others than in the whole prompt",
        length,
        window,
    )
