"""ZeroGPU of Spaces, which lends a GPU for a single call: the call runs in a process of its own.

    lends()                                        whether this is such a Space
    lend(0, model, answered, image, question)      answered(model, image, question) on the lent GPU

The process is forked from the Space's, or goes on from an earlier call. So it has the model that was loaded
before, on the CPU, and all else that goes in or comes out is pickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from arr_coc.files.device import resolve_device
from arr_coc.model import ARRCOCModel

T = TypeVar("T")
FLAG = "SPACES_ZERO_GPU"  # environment variable that ZeroGPU sets
TRUE = ("1", "t", "true")

_models: dict[int, ARRCOCModel] = {}  # loaded ones by number, for processes that are forked from here


@dataclass(frozen=True)
class Refusal:
    """The message of a ValueError that was raised in another process, to be raised again in this one."""

    message: str


def lends() -> bool:
    """Return whether this process is a Space on ZeroGPU, with the package `spaces` that lends its GPU."""
    return os.environ.get(FLAG, "").lower() in TRUE and find_spec("spaces") is not None


@cache
def lent_call() -> Callable[..., Any]:
    """`call`, decorated so that it has a GPU; made before the app starts, since ZeroGPU then looks for it."""
    return import_module("spaces").GPU(call)


def call(which: int, work: Callable[..., T], *arguments: Any) -> T | Refusal:
    """Run `work(model, *arguments)` with model number `which`, moved to the GPU if there is one."""
    try:
        return work(_models[which].to(resolve_device("auto")), *arguments)
    except ValueError as error:
        return Refusal(str(error))


def lend(which: int, model: ARRCOCModel, work: Callable[..., T], *arguments: Any) -> T:
    """Return the result of `work(model, *arguments)`, a module's function, on a GPU that is lent for it.

    `which` numbers the models of this process. Raises the ValueError that `work` raises.
    """
    _models.setdefault(which, model)
    result = lent_call()(which, work, *arguments)
    if isinstance(result, Refusal):
        raise ValueError(result.message)
    return result
