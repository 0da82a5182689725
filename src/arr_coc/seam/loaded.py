"""Properties of a loaded model: the device of its calls, its narrowest attention window, its recurrence."""

from __future__ import annotations

import logging
import weakref
from typing import Any, NamedTuple

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


# Properties of a wrapped base model that other libraries read of a model object.


class BaseProperties:
    """Properties of the base model that `transformers.pipeline` and training loops read of a model.

    For a class that holds its base model as `base`.
    """

    base: Any

    @property
    def config(self) -> Any:
        """The base model's configuration."""
        return self.base.config

    @property
    def generation_config(self) -> Any:
        """The base model's settings of `generate`."""
        return self.base.generation_config

    @property
    def device(self) -> torch.device:
        """The device of the base model's calls, also where its weights are offloaded."""
        return execution_device(self.base)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the base model's weights."""
        return self.base.dtype

    @property
    def hf_device_map(self) -> Any:
        """The devices of a base model that is spread over several; others don't have this attribute."""
        return self.base.hf_device_map

    @property
    def input_modalities(self) -> Any:
        """The kinds of input of the base model, such as ("image", "text")."""
        return self.base.input_modalities

    @property
    def output_modalities(self) -> Any:
        """The kinds of output of the base model."""
        return self.base.output_modalities

    def can_generate(self) -> bool:
        """Always: a model without a generation head isn't wrapped."""
        return True

    def activation_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """Refused: the base model stays in evaluation mode, in which transformers keeps every activation.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "gradient_checkpointing has no effect on a frozen base model: leave it out, or train with "
            "`arr-coc train ... checkpointing=true`"
        )

    gradient_checkpointing_enable = activation_checkpointing_enable


# Freezing of a base model, and its inverse.
#
# freeze(model, holder)     no parameter learns, every module is in evaluation mode
# restore(model, holder)    both as before the first `freeze`, once nobody else needs it frozen


class Before(NamedTuple):
    """A model before it was frozen, and who needs it frozen.

    Attributes:
        training: names of the modules in training mode.
        frozen: names of the parameters that didn't learn.
        holders: who froze it and hasn't restored it; one that is deleted needs nothing.
    """

    training: frozenset[str]
    frozen: frozenset[str]
    holders: weakref.WeakSet[nn.Module]


_BEFORE: weakref.WeakKeyDictionary[nn.Module, Before] = weakref.WeakKeyDictionary()
"""Models that are frozen."""


def freeze(model: PreTrainedModel, holder: nn.Module) -> PreTrainedModel:
    """Freeze a model and put it into evaluation mode; its flags before the first time are stored.

    Args:
        model: the model.
        holder: who needs it frozen, until `restore`.
    """
    training = frozenset(name for name, module in model.named_modules() if module.training)
    frozen = frozenset(name for name, parameter in model.named_parameters() if not parameter.requires_grad)
    _BEFORE.setdefault(model, Before(training, frozen, weakref.WeakSet())).holders.add(holder)
    return model.requires_grad_(False).eval()


def restore(model: PreTrainedModel, holder: nn.Module) -> PreTrainedModel:
    """Undo `freeze` where nobody else needs it; a model that wasn't frozen by it is left unchanged.

    Args:
        model: the model.
        holder: who needs it frozen no more.
    """
    before = _BEFORE.get(model)
    if before is None:
        return model
    before.holders.discard(holder)
    if not before.holders:
        del _BEFORE[model]
        for name, module in model.named_modules():
            module.training = name in before.training
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in before.frozen)
    return model
