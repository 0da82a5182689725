"""A count of the bytes that a forward moves, beside torch's count of its operations.

    with FlopCounterMode(...) as flops, ByteCounter() as moved: ...

A way with a times fewer operations and b times fewer bytes is expected to be between b and a times faster:
dropping tokens saves operations in proportion, but the weights are read once for any number of tokens.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

Shape = Sequence[int]


def attention_flops(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """Operations of fused attention of shapes [B, H, Q, d], [B, G, S, d] and [B, G, S, e]."""
    batch, heads, rows, width = query
    return 2 * batch * heads * rows * key[-2] * (width + value[-1])


FUSED = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention_flops}
"""Early versions of torch count no fused attention on CPUs."""


class ByteCounter(TorchDispatchMode):
    """Counts in `total` the bytes of operands and results of matrix products, convolutions and attention.

    Each operand counts as read once and each result as written once, without caches. Elementwise operations,
    norms, lookups and copies are left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._overloadpacket in flop_registry or func._overloadpacket in FUSED:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
            self.total += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


def processor_name(device: torch.device) -> str:
    """Return the GPU's name, or the CPU's model as its system calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no Linux
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models and models[0] else platform.processor() or platform.machine()
