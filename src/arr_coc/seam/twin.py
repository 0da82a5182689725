"""Twins: a second tree of modules over the weights of a loaded model.

    twin(model) -> PreTrainedModel of the same class, with the same parameters and buffers

What is done to the modules of a twin (an adapter put in, another attention implementation) is not done to the
model: its tree, its state dict, its class, its forward and its configuration stay as they are, whoever is
using it at that moment. Weights are shared, so a twin costs no memory to speak of, and a change of the
model's weights is a change of the twin's.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)

SHARED = ("_parameters", "_buffers")
"""Attributes of a module that its twin holds too, as the same dictionaries: moving, casting or loading
weights reaches both."""


def twin(module: Module, replace: Callable[[nn.Module], nn.Module | None] = lambda _: None) -> Module:
    """Make a second tree of modules over the same parameters and buffers.

    Lists, dictionaries and sets that a module holds are copied, other attributes (its configuration among
    them) are shared. Methods that were bound to a module of the first tree, as accelerate's hooks are, become
    methods of its twin. A module compiled by `torch.compile` is shared as a whole.

    Args:
        module: the root of the first tree; it is not changed.
        replace: from a module of the first tree to what stands in its place in the second, taken as it is;
            None: its twin.
    """
    made: dict[int, nn.Module] = {}

    def visit(old: nn.Module) -> nn.Module:
        if id(old) not in made:
            other = old if _is_compiled(old) else replace(old)
            made[id(old)] = copied(old) if other is None else other  # `or` would ask a module for its length
        return made[id(old)]

    def copied(old: nn.Module) -> nn.Module:
        new = made[id(old)] = object.__new__(type(old))  # first, for modules that refer to it
        for name, value in vars(old).items():
            if name == "_modules":
                value = {key: child if child is None else visit(child) for key, child in value.items()}
            elif name not in SHARED:
                value = rebound(value, old, new)
            vars(new)[name] = value
        return new

    def rebound(value: Any, old: nn.Module, new: nn.Module) -> Any:
        """An attribute of `old` as one of `new`."""
        if isinstance(value, nn.Module):  # held beside the tree
            return visit(value) if id(value) in made else value
        if isinstance(value, types.MethodType) and value.__self__ is old:
            return types.MethodType(value.__func__, new)
        if isinstance(value, functools.partial) and any(arg is old for arg in value.args):
            args = [new if arg is old else arg for arg in value.args]
            return functools.partial(value.func, *args, **value.keywords)
        if isinstance(value, dict | list | set):
            return copy.copy(value)
        return value

    result: Any = visit(module)
    return result


def _is_compiled(module: nn.Module) -> bool:
    """Whether `torch.compile` made it: compiled code runs its own tree, whatever tree it stands in."""
    return hasattr(module, "_torchdynamo_orig_callable") or hasattr(module, "_orig_mod")


def with_configs(module: nn.Module, change: Callable[[Any], None]) -> None:
    """Give each module of a tree a copy of its configuration, changed; one copy for each configuration.

    Args:
        module: the root of the tree.
        change: changes a copy.
    """
    copies: dict[int, Any] = {}
    for part in module.modules():
        config = vars(part).get("config")
        if config is None:
            continue
        if id(config) not in copies:
            copies[id(config)] = copy.copy(config)
            change(copies[id(config)])
        vars(part)["config"] = copies[id(config)]


def adapter_state(model: nn.Module) -> tuple[Any, ...]:
    """The user's own adapters in a model, by name, and those at work: changes when they do.

    Twins hold what the model held when they were made; one that was made under another state is stale.
    """
    named: Mapping[str, Any] = vars(model).get("peft_config") or {}
    if not named:
        return ()
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = (module for module in model.modules() if isinstance(module, BaseTunerLayer))
    layer = next(layers, None)
    if layer is None:
        return (tuple(named),)
    return tuple(named), tuple(layer.active_adapters), bool(layer.disable_adapters)
