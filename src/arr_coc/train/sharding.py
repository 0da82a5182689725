"""FSDP: a frozen base model divided over the processes of a run, each with a part of every layer.

    accelerate launch --use_fsdp --num_processes 2 -m arr_coc train partial ...

Parameters that learn, embeddings and mergers stay whole in every process. A layer is gathered by all
processes at once, so all must compute the same layers in the same order (`Learner.most`).
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

# whether FSDP2 runs on CPUs: torch 2.6 lacks a method of their streams
DIVIDES_CPUS = hasattr(torch.cpu.Stream, "record_event")
# attribute of a module that lists the parameters DistributedDataParallel leaves alone
DDP_IGNORES = "_ddp_params_and_buffers_to_ignore"


def in_turns(make: Callable[[], Made]) -> Made:
    """Call `make` in one process of a machine after the other: one whole model in memory at a time."""
    mine, all_here = (int(os.environ.get(name, "0")) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    made: list[Made] = []
    for turn in range(all_here or distributed.get_world_size()):
        if turn == mine:
            made.append(make())
        distributed.barrier()
    return made[0]


def make_mesh(device: torch.device) -> DeviceMesh:
    """Return a mesh of all processes of the run; ValueError if this torch can't divide over CPUs."""
    if device.type == "cpu" and not DIVIDES_CPUS:
        raise ValueError(
            f"torch {torch.__version__} can't divide a model over CPUs: install a newer one, or launch "
            "without FSDP"
        )
    return init_device_mesh(device.type, (distributed.get_world_size(),))


def divide(base: nn.Module, mesh: DeviceMesh) -> int:
    """Divide the frozen layers of a model over all processes of the run, in place; returns how many.

    By `fully_shard` (FSDP2; Zhao et al. 2023, arXiv 2304.11277): a layer is gathered for its forward and
    backward computation, and freed after each. ValueError if there is none, or one is still whole.
    """
    layers = [
        layer
        for layer in outermost(base)
        if not any(parameter.requires_grad for parameter in layer.parameters())
    ]
    # FSDP2 hooks the layers, and twins (`seam.loaded`) share hooks and weights, so they are divided too.
    # accelerate's FSDP hooks `forward` of the outer module alone, and divides nothing on CPUs.
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    check_divided(base, layers)
    return len(layers)


def outermost(base: nn.Module) -> list[nn.Module]:
    """Checkpointable layers of a model, without those inside other layers."""
    layers = [module for module in base.modules() if isinstance(module, GradientCheckpointingLayer)]
    inner = {id(part) for layer in layers for part in layer.modules() if part is not layer}
    return [layer for layer in layers if id(layer) not in inner]


def check_divided(base: nn.Module, layers: Iterable[nn.Module]) -> None:
    """Raise ValueError unless FSDP holds all `layers`, and this process only a part of each."""
    layers = list(layers)
    whole = [layer for layer in layers if not isinstance(layer, FSDPModule) or _held(layer) >= _all(layer)]
    if whole or not layers:
        which = f"{len(whole)} of {len(layers)} layers of" if layers else "all layers of"
        raise ValueError(
            f"FSDP was asked for, but {which} {type(base).__name__} are whole in every process: launch "
            f"without it (unset {FSDP}), or set checkpointing=true or precision=bfloat16"
        )


def _held(module: nn.Module) -> int:
    return sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in module.parameters())


def _all(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def leave_alone(module: nn.Module) -> None:
    """Exclude divided weights from DistributedDataParallel, which will wrap this module."""
    names = [name for name, parameter in module.named_parameters() if isinstance(parameter, DTensor)]
    setattr(module, DDP_IGNORES, names)


@torch.no_grad()
def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace gradients by their mean over all processes, in one exchange after the backward pass."""
    # During the backward pass gradients arrive in an order that depends on the images, between gathers.
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in learned:
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    grads = [parameter.grad for parameter in learned if parameter.grad is not None]
    flat = torch.cat([grad.float().flatten() for grad in grads])  # float32: sums of bfloat16 lose digits
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for grad, mean in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(mean.view_as(grad))


def whole_weights(base: nn.Module, keep: bool) -> dict[str, Tensor]:
    """Return all weights of a divided model by name, on the CPU if `keep`, else {}; every process has to
    call it.
    """
    weights: dict[str, Tensor] = {}
    for name, part in base.state_dict().items():
        whole = part.full_tensor() if isinstance(part, DTensor) else part
        if keep:
            weights[name] = whole.cpu()
    return weights
