"""Freezing of a base model, and its inverse.

freeze(model)     no parameter learns, every module is in evaluation mode
restore(model)    both as before the first `freeze`
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

from torch import nn
from transformers import PreTrainedModel


class Flags(NamedTuple):
    """The flags that freezing sets, by name: modules in training mode, and parameters that don't learn."""

    training: frozenset[str]
    frozen: frozenset[str]


_BEFORE: weakref.WeakKeyDictionary[nn.Module, Flags] = weakref.WeakKeyDictionary()
"""The flags that models had before they were frozen."""


def freeze(model: PreTrainedModel) -> PreTrainedModel:
    """Freeze a model and put it into evaluation mode; its flags before the first time are stored."""
    training = frozenset(name for name, module in model.named_modules() if module.training)
    frozen = frozenset(name for name, parameter in model.named_parameters() if not parameter.requires_grad)
    _BEFORE.setdefault(model, Flags(training, frozen))
    return model.requires_grad_(False).eval()


def restore(model: PreTrainedModel) -> PreTrainedModel:
    """Undo `freeze`; a model that wasn't frozen by it is left unchanged."""
    flags = _BEFORE.pop(model, None)
    if flags is not None:
        for name, module in model.named_modules():
            module.training = name in flags.training
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in flags.frozen)
    return model
