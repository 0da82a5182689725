"""A loaded model, used and never changed: its twin, its device, its freezing, the model inside wrappers.

A twin is a second tree of modules over the same parameters and buffers: adapters put into it, or another
attention implementation, are no change of the model, even while that is in use.
"""

from __future__ import annotations

import copy
import functools
import logging
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel

logger = logging.getLogger(__name__)


def plain_model(model: Any) -> PreTrainedModel:
    """Return the transformers model inside the wrappers of `torch.compile` and peft; adapters stay in it.

    A model compiled as a whole runs uncompiled, with a warning. A ValueError for prompt learning.
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


def execution_device(model: PreTrainedModel) -> torch.device:
    """Return the device on which a model's calls run; offloaded weights are on "meta" between calls."""
    if model.device.type != "meta":
        return model.device
    return next(filter(None, map(hook_device, model.modules())), model.device)


def hook_device(module: nn.Module) -> torch.device | None:
    """Return the device to which accelerate's hook fetches a module's weights; None without such a hook."""
    hook = getattr(module, "_hf_hook", None)
    for part in getattr(hook, "hooks", [hook]):
        if getattr(part, "execution_device", None) is not None:
            return torch.device(part.execution_device)
    return None


# ---- properties that other libraries read of a model object


class BaseProperties:
    """Properties of the base model, `base`, that `transformers.pipeline` and training loops read."""

    base: Any

    @property
    def config(self) -> Any:
        return self.base.config

    @property
    def generation_config(self) -> Any:
        return self.base.generation_config

    @property
    def device(self) -> torch.device:
        """The device of the base model's calls, also where its weights are offloaded."""
        return execution_device(self.base)

    @property
    def dtype(self) -> torch.dtype:
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
        return self.base.output_modalities

    def can_generate(self) -> bool:
        """True: a model without a generation head isn't wrapped."""
        return True

    def activation_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """Refused with a ValueError: in evaluation mode transformers keeps every activation anyway."""
        raise ValueError(
            "gradient_checkpointing has no effect on a frozen base model: leave it out, or train with "
            "`arr-coc train ... checkpointing=true`"
        )

    gradient_checkpointing_enable = activation_checkpointing_enable


# ---- freezing


class Before(NamedTuple):
    """The state of a model before `freeze`, to which `restore` returns it.

    Names of the modules in training mode and of the parameters that didn't learn; `holders` still need it
    frozen.
    """

    training: frozenset[str]
    frozen: frozenset[str]
    holders: weakref.WeakSet[nn.Module]


_BEFORE: weakref.WeakKeyDictionary[nn.Module, Before] = weakref.WeakKeyDictionary()


def freeze(model: PreTrainedModel, holder: nn.Module) -> PreTrainedModel:
    """Freezes a model and puts it into evaluation mode, as `holder` needs it until `restore`."""
    training = frozenset(name for name, module in model.named_modules() if module.training)
    frozen = frozenset(name for name, parameter in model.named_parameters() if not parameter.requires_grad)
    _BEFORE.setdefault(model, Before(training, frozen, weakref.WeakSet())).holders.add(holder)
    return model.requires_grad_(False).eval()


def restore(model: PreTrainedModel, holder: nn.Module) -> PreTrainedModel:
    """Undoes `freeze` where no other holder needs it; a model that wasn't frozen by it is left unchanged."""
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


Module = TypeVar("Module", bound=nn.Module)

# ---- twins

# Shared with the twin as the same objects: moving, casting, loading or merging weights changes both.
SHARED = (
    "_parameters",
    "_buffers",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "merged_adapters",
)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# set in layers by `gradient_checkpointing_enable`
CHECKPOINTING = ("gradient_checkpointing", "_gradient_checkpointing_func")
CAPTURING = "transformers.utils.output_capturing"  # its hooks, mirrored, would collect hidden states twice


_MIRRORS: weakref.WeakKeyDictionary[nn.Module, HookMirror]
_MIRRORS = weakref.WeakKeyDictionary()


class HookMirror:
    """Copies the hooks of a tree of modules to its twin, and removes those that were removed."""

    def __init__(self, pairs: Iterable[tuple[nn.Module, nn.Module]]) -> None:
        both = [(vars(old), vars(new), hasattr(old, CHECKPOINTING[0])) for old, new in pairs]
        self._places = [(old[name], new[name]) for old, new, _ in both for name in HOOKS]
        self._layers = [(old, new) for old, new, checkpointing in both if checkpointing]
        self._sources = [source for source, _ in self._places]
        self._mirrored: set[int] = set()

    def update(self) -> None:
        """Gives the twin the current hooks and gradient checkpointing; fast while there are none."""
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
    """Return the same twin, with the current hooks of the first tree, and its gradient checkpointing."""
    _MIRRORS[root].update()
    return root


def twin(module: Module) -> Module:
    """Makes a second tree of modules over the same parameters and buffers; `module` is not changed.

    Lists, dictionaries and sets that a module holds are copied, other attributes shared. Hooks of the first
    tree run in the second as well (`refresh`). Methods bound to a module of the first tree, as accelerate's
    hooks are, become methods of its twin. What `torch.compile` compiled runs uncompiled in the twin.
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
        """Return an attribute of `old` as one of `new`."""
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
    """Gives each module of a tree a copy of its configuration, changed; one copy for each configuration."""
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
    """Return a key of a model's vocabulary size and the user's adapters: a twin made under another key is
    stale.
    """
    embeddings: Any = model.get_input_embeddings()
    return tuple(embeddings.weight.shape), adapter_state(model)


def adapter_state(model: nn.Module) -> tuple[Any, ...]:
    """Return the user's own adapters in a model: names, active ones, whether disabled, merged ones; or ()."""
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
