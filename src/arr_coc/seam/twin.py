"""Twins: a second tree of modules over the weights of a loaded model.

    twin(model) -> PreTrainedModel of the same class, with the same parameters and buffers

A change of the twin's modules (an adapter put in, another attention implementation) is no change of the
model: its modules, state dict, class, forward and configuration stay as they are, even while it is in use.
Weights are shared, so a twin takes hardly any memory, and a change of the model's weights is one of the
twin's, too.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from torch import nn
from transformers import PreTrainedModel

Module = TypeVar("Module", bound=nn.Module)

SHARED = (
    "_parameters",
    "_buffers",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "merged_adapters",
)
"""Attributes of a module that its twin shares, as the same objects: moving, casting or loading weights
changes both, and so do options of hooks, and merging an adapter of peft's into weights that they share."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
CHECKPOINTING = ("gradient_checkpointing", "_gradient_checkpointing_func")
"""What `gradient_checkpointing_enable` sets in the layers of a model."""
CAPTURING = "transformers.utils.output_capturing"
"""Hooks of this Python module collect hidden states and attentions; they are not mirrored, or the twin would
collect everything twice."""


_MIRRORS: weakref.WeakKeyDictionary[nn.Module, HookMirror]
_MIRRORS = weakref.WeakKeyDictionary()
"""The mirror of each twin, by its root."""


class HookMirror:
    """Copies the hooks of a tree of modules to its twin, and removes those that were removed.

    Args:
        pairs: modules of the first tree and their twins.
    """

    def __init__(self, pairs: Iterable[tuple[nn.Module, nn.Module]]) -> None:
        both = [(vars(old), vars(new), hasattr(old, CHECKPOINTING[0])) for old, new in pairs]
        self._places = [(old[name], new[name]) for old, new, _ in both for name in HOOKS]
        self._layers = [(old, new) for old, new, checkpointing in both if checkpointing]
        self._sources = [source for source, _ in self._places]
        self._mirrored: set[int] = set()

    def update(self) -> None:
        """Give the twin the current hooks of the first tree beside its own; fast while there are none.

        Gradient checkpointing, which is a mark on the layers, is mirrored too.
        """
        for old, new in self._layers:
            new.update((name, old[name]) for name in CHECKPOINTING if name in old)
        if not self._mirrored and not any(self._sources):
            return
        current: set[int] = set()
        for source, target in self._places:
            hooks = {i: hook for i, hook in source.items() if getattr(hook, "__module__", "") != CAPTURING}
            for i in [i for i in target if i in self._mirrored and i not in hooks]:
                del target[i]
            target.update(hooks)
            current |= hooks.keys()
        self._mirrored = current


def refresh(root: Module) -> Module:
    """The same twin, with the current hooks of the first tree, and its gradient checkpointing."""
    _MIRRORS[root].update()
    return root


def twin(module: Module) -> Module:
    """Make a second tree of modules over the same parameters and buffers.

    Lists, dictionaries and sets that a module holds are copied, other attributes (its configuration among
    them) are shared. Hooks on modules of the first tree run in the second as well, see `refresh`. Methods
    that were bound to a module of the first tree, as accelerate's hooks are, become methods of its twin. What
    `torch.compile` has compiled runs uncompiled in the twin: compiled code runs the modules of the first
    tree, without what was put into the twin.

    Args:
        module: the root of the first tree; it is not changed.
    """
    made: dict[int, nn.Module] = {}

    def visit(old: nn.Module) -> nn.Module:
        if id(old) not in made:
            inside: Any = vars(old).get("_modules", {}).get("_orig_mod")  # of what torch.compile made
            made[id(old)] = copied(old) if inside is None else visit(inside)
        return made[id(old)]

    def copied(old: nn.Module) -> nn.Module:
        new = made[id(old)] = object.__new__(type(old))  # recorded first, for modules that refer to it
        for name, value in vars(old).items():
            if name == "_modules":
                value = {key: child if child is None else visit(child) for key, child in value.items()}
            elif name in HOOKS:
                value = OrderedDict()
            elif name == "_output_capturing_hooks_installed":
                continue  # a mark of the first tree alone
            elif name == "_compiled_call_impl":
                value = None  # compiled code runs the modules that it was compiled of
            elif name not in SHARED:
                value = rebound(value, old, new)
            vars(new)[name] = value
        return new

    def rebound(value: Any, old: nn.Module, new: nn.Module) -> Any:
        """An attribute of `old` as one of `new`."""
        value = getattr(value, "_torchdynamo_orig_callable", value)  # a compiled method
        if isinstance(value, nn.Module):  # held beside the tree
            return visit(value) if id(value) in made else value
        if isinstance(value, types.MethodType) and value.__self__ is old:
            return types.MethodType(value.__func__, new)
        if isinstance(value, functools.partial) and any(arg is old for arg in value.args):
            args = [new if arg is old else arg for arg in value.args]
            partial = functools.partial(value.func, *args, **value.keywords)
            vars(partial).update(vars(value))  # its name and signature, which `generate` reads
            return partial
        if isinstance(value, dict | list | set):
            return copy.copy(value)
        return value

    result: Any = visit(module)
    pairs = ((old, made[id(old)]) for old in module.modules() if id(old) in made)
    _MIRRORS[result] = HookMirror(
        (old, new) for old, new in pairs if type(old) is type(new) and old is not new
    )
    return refresh(result)


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


def twin_key(model: PreTrainedModel) -> tuple[Any, ...]:
    """A key of what a twin copies of a model and a user may change later; a twin of another key is stale.

    It holds the size of the vocabulary, since resizing the embeddings replaces their module, and
    `adapter_state`.
    """
    embeddings: Any = model.get_input_embeddings()
    return tuple(embeddings.weight.shape), adapter_state(model)


def adapter_state(model: nn.Module) -> tuple[Any, ...]:
    """A key of the user's own adapters in a model: names, the active ones, whether disabled, the merged ones.

    A twin has the adapters that the model had when it was made, so one of another state is stale.
    """
    named: Mapping[str, Any] = vars(model).get("peft_config") or {}
    if not named:
        return ()
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = (module for module in model.modules() if isinstance(module, BaseTunerLayer))
    layer = next(layers, None)
    if layer is None:
        return (tuple(named),)
    merged = tuple(layer.merged_adapters)
    return tuple(named), tuple(layer.active_adapters), bool(layer.disable_adapters), merged
