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
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)

SHARED = (
    "_parameters",
    "_buffers",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
)
"""Attributes of a module that its twin holds too, as the same dictionaries: moving, casting or loading
weights reaches both, and so does what is said of a hook."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
CAPTURING = "transformers.utils.output_capturing"
"""Hooks of this module collect hidden states and attentions; a tree has its own, or all would come twice."""


class Hooks(MutableMapping[int, Any]):
    """Hooks of a twin's module by id: those of the module it stands for, as they come and go, and its own.

    Args:
        others: those of the other module.
    """

    def __init__(self, others: Mapping[int, Any]) -> None:
        self._own: OrderedDict[int, Any] = OrderedDict()
        self._others = others

    def _all(self) -> dict[int, Any]:
        others = self._others.items()
        return {i: hook for i, hook in others if getattr(hook, "__module__", "") != CAPTURING} | self._own

    def __getitem__(self, key: int) -> Any:
        return self._all()[key]

    def __setitem__(self, key: int, hook: Any) -> None:
        self._own[key] = hook

    def __delitem__(self, key: int) -> None:
        del self._own[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all()) if self._others else len(self._own)

    def move_to_end(self, key: int, last: bool = True) -> None:
        """As of an `OrderedDict`, among its own."""
        self._own.move_to_end(key, last)


def twin(module: Module, replace: Callable[[nn.Module], nn.Module | None] = lambda _: None) -> Module:
    """Make a second tree of modules over the same parameters and buffers.

    Lists, dictionaries and sets that a module holds are copied, other attributes (its configuration among
    them) are shared. Hooks on a module of the first tree, now or later, run in the second as well. Methods
    that were bound to a module of the first tree, as accelerate's hooks are, become methods of its twin. A
    module compiled by `torch.compile` is shared as a whole.

    Args:
        module: the root of the first tree; it is not changed.
        replace: from a module of the first tree to what stands in its place in the second, taken as it is;
            None: its twin.
    """
    made: dict[int, nn.Module] = {}

    def visit(old: nn.Module) -> nn.Module:
        if id(old) not in made:
            made[id(old)] = _shared(old) or replace(old) or copied(old)
        return made[id(old)]

    def copied(old: nn.Module) -> nn.Module:
        new = made[id(old)] = object.__new__(type(old))  # first, for modules that refer to it
        for name, value in vars(old).items():
            if name == "_modules":
                value = {key: child if child is None else visit(child) for key, child in value.items()}
            elif name in HOOKS:
                value = Hooks(value)
            elif name == "_output_capturing_hooks_installed":
                continue  # of the other tree
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


def _shared(module: nn.Module) -> nn.Module | None:
    """A compiled module itself: its compiled code runs its own tree, whatever tree it stands in."""
    return module if hasattr(module, "_torchdynamo_orig_callable") or hasattr(module, "_orig_mod") else None


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
