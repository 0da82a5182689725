"""Operators: how many operators of torch a function calls, and how often it waits for the device.

count_operators(lambda: guide.encode(pictures))    OperatorCounts(computing=475, views=435, waits=0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

# Operators that make memory of which nothing is computed yet, or another view of the same.
MEMORY = frozenset(("_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "lift_fresh"))
# Operators whose result the host has to wait for, on a device that runs by itself.
WAITS = frozenset(("_local_scalar_dense", "nonzero", "bincount", "masked_select", "_unique2"))


class OperatorCounts(NamedTuple):
    """What a function calls."""

    computing: int  # operators that compute; each is about one kernel that a GPU is told to run
    views: int  # operators that only make views or memory
    waits: int  # of those that compute, how many the host waits for


def count_operators(function: Callable[[], object]) -> OperatorCounts:
    """Count the operators that a call hands to a device.

    One that is made of others is counted by those: `linear` as `addmm`. The function runs twice, the first
    time for what is made once and kept. No gradient may be wanted.
    """
    function()
    with _Counting() as counting:
        function()
    names = counting.names
    views = sum(count for (_, is_view), count in names.items() if is_view)
    return OperatorCounts(names.total() - views, views, counting.waits)


class _Counting(TorchDispatchMode):
    """Counts operators by name, and by whether they are views."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[tuple[str, bool]] = Counter()
        self.waits = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.name().removeprefix("aten::").split(".")[0]
        # A result that shares memory with an argument, without writing to it, is a view.
        shared = any(
            one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns
        )
        # An index of truth values is turned into numbers, of which there may be any number.
        listed = args[1] if name.startswith("index") and len(args) > 1 else ()
        indices = listed if isinstance(listed, Sequence) else ()
        self.waits += name in WAITS or any(
            isinstance(one, Tensor) and one.dtype == torch.bool for one in indices
        )
        self.names[name, shared or name in MEMORY] += 1
        return func(*args, **(kwargs or {}))


def floating_operations(function: Callable[[], object]) -> int:
    """Return the floating point operations of the matrix products and convolutions of a call."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()
