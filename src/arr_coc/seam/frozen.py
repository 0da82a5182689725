"""Freezing of a base model, and its inverse.

freeze(model, holder)     no parameter learns, every module is in evaluation mode
restore(model, holder)    both as before the first `freeze`, once nobody else needs it frozen
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

from torch import nn
from transformers import PreTrainedModel


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
