"""A mark for torch's compiler, set without importing that: the import takes a second, and few compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def constant_result(function: F) -> F:
    """Mark a function whose result a compiled graph may hold as a constant, and return it.

    The mark of `torch.compiler.assume_constant_result`, which imports the whole compiler to set it.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function
