"""FSDP: a frozen base model that the processes of a run hold together, each a part of every layer.

    accelerate launch --use_fsdp --num_processes 2 -m arr_coc train partial ...

What learns is small and stays whole in every process, and so do embeddings and mergers. A layer is put
together by all processes at once, so all compute the same layers in the same order (`Learner.most`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from transformers.modeling_layers import GradientCheckpointingLayer

from arr_coc.train.processes import FSDP

Made = TypeVar("Made")

DIVIDES_CPUS = hasattr(torch.cpu.Stream, "record_event")
"""Whether FSDP2 runs on CPUs: its streams lack what it calls in torch 2.6."""
DDP_IGNORES = "_ddp_params_and_buffers_to_ignore"
"""The attribute by which a module names what DistributedDataParallel leaves alone."""


def in_turns(make: Callable[[], Made]) -> Made:
    """What `make` returns, called in one process of a machine after the other.

    So that a machine holds one whole model at a time while all of its processes load it.
    """
    mine, all_here = (int(os.environ.get(name, "0")) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    made: list[Made] = []
    for turn in range(all_here or distributed.get_world_size()):
        if turn == mine:
            made.append(make())
        distributed.barrier()
    return made[0]


def make_mesh(device: torch.device) -> DeviceMesh:
    """All processes of the run and their devices, of which `device` is this one's.

    Raises:
        ValueError: this torch divides nothing over CPUs.
    """
    if device.type == "cpu" and not DIVIDES_CPUS:
        raise ValueError(
            f"torch {torch.__version__} can't divide a model over CPUs: install a newer one, or launch "
            "without FSDP"
        )
    return init_device_mesh(device.type, (distributed.get_world_size(),))


def divide(base: nn.Module, mesh: DeviceMesh) -> int:
    """Divide the layers of a model that learn nothing over all processes of the run, in place.

    By `fully_shard` (FSDP2; Zhao et al. 2023, arXiv 2304.11277): a layer is put together before it is
    computed, forward and on the way back, and is a part again after it.

    Returns:
        How many layers are divided now.

    Raises:
        ValueError: the model has no such layer, or some layer is whole afterwards.
    """
    layers = [
        layer
        for layer in outermost(base)
        if not any(parameter.requires_grad for parameter in layer.parameters())
    ]
    # By hooks of the layers, so that twins (`seam.loaded`), which share hooks and weights, need nothing more.
    # accelerate's own FSDP would divide what learns by its `forward` alone, and divides nothing on CPUs.
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    check_divided(base, layers)
    return len(layers)


def outermost(base: nn.Module) -> list[nn.Module]:
    """The layers of a model, without layers inside of layers."""
    layers = [module for module in base.modules() if isinstance(module, GradientCheckpointingLayer)]
    inner = {id(part) for layer in layers for part in layer.modules() if part is not layer}
    return [layer for layer in layers if id(layer) not in inner]


def check_divided(base: nn.Module, layers: Iterable[nn.Module]) -> None:
    """Check that FSDP holds layers, and that this process has a part of each alone.

    Raises:
        ValueError: it does not.
    """
    layers = list(layers)
    whole = [layer for layer in layers if not isinstance(layer, FSDPModule) or _held(layer) >= _all(layer)]
    if whole or not layers:
        which = f"{len(whole)} of {len(layers)} layers of" if layers else "all layers of"
        raise ValueError(
            f"FSDP was asked for, but {which} {type(base).__name__} are whole in every process: launch "
            f"without it (unset {FSDP}), or set checkpointing=true or precision=bfloat16"
        )


def _held(module: nn.Module) -> int:
    """Numbers of a module's parameters that this process holds."""
    return sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in module.parameters())


def _all(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def leave_alone(module: nn.Module) -> None:
    """Tell DistributedDataParallel, which will get this module, that divided weights are not its business."""
    names = [name for name, parameter in module.named_parameters() if isinstance(parameter, DTensor)]
    setattr(module, DDP_IGNORES, names)


@torch.no_grad()
def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace gradients by their mean over all processes, in one exchange.

    After the way back, not during it: what arrives when depends on the images, and layers are put together
    in between.
    """
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in learned:
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    grads = [parameter.grad for parameter in learned if parameter.grad is not None]
    flat = torch.cat([grad.float().flatten() for grad in grads])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for grad, mean in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(mean.view_as(grad))


def whole_weights(base: nn.Module, keep: bool) -> dict[str, Tensor]:
    """The weights of a divided model by name, whole, on the CPU; every process has to call it.

    Args:
        base: the model.
        keep: whether this process gets them; else nothing.
    """
    weights: dict[str, Tensor] = {}
    for name, part in base.state_dict().items():
        whole = part.full_tensor() if isinstance(part, DTensor) else part
        if keep:
            weights[name] = whole.cpu()
    return weights
