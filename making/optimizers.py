"""Optimizers and resumable checkpoints of the bundled model's stages: one safetensors file, never a pickle.

Matrices inside the transformer layers learn with Muon (Jordan et al. 2024; `torch.optim.Muon`, of torch 2.9
or newer), which took a third of AdamW's steps here; embeddings, norms, biases and heads learn with AdamW.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn


class Optimizers:
    """Muon and AdamW side by side, with one learning rate: Muon's is scaled to AdamW's step size."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], lr: float) -> None:
        learned = [(name, p) for name, p in named if p.requires_grad]
        matrices = [p for name, p in learned if p.ndim == 2 and ("blocks." in name or "layers." in name)]
        taken = {id(p) for p in matrices}
        rest = [p for _, p in learned if id(p) not in taken]
        self.parameters = [p for _, p in learned]
        self.parts: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
        ]
        if matrices:
            self.parts.append(
                torch.optim.Muon(matrices, lr=lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
            )

    def step(self, loss: torch.Tensor, lr: float, clip: float = 1.0) -> None:
        """One step down the gradient of `loss`."""
        for part in self.parts:
            part.zero_grad()
            for group in part.param_groups:
                group["lr"] = lr
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, clip)
        for part in self.parts:
            part.step()

    def state(self) -> dict[int, dict[str, torch.Tensor]]:
        """Per parameter (by id) its tensors of state."""
        return {id(p): state for part in self.parts for p, state in part.state.items()}

    def restore(self, parameter: nn.Parameter, state: dict[str, torch.Tensor]) -> None:
        """Put back the state of one parameter."""
        for part in self.parts:
            if any(parameter is p for group in part.param_groups for p in group["params"]):
                part.state[parameter] = state


def save_checkpoint(path: Path, module: nn.Module, optimizers: Optimizers, step: int) -> None:
    """Write atomically: a run that is killed while saving keeps its last checkpoint."""
    tensors = {f"weight.{name}": p.detach().contiguous() for name, p in module.named_parameters()}
    states = optimizers.state()
    for name, parameter in module.named_parameters():
        for key, value in states.get(id(parameter), {}).items():
            tensors[f"state.{key}.{name}"] = value.detach().contiguous()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    save_file(tensors, part, metadata={"step": str(step)})
    os.replace(part, path)


class Saver:
    """Writes a checkpoint every few minutes and at the end, however long a step takes.

    Args:
        path: of the checkpoint.
        module: whose weights it holds.
        optimizers: with their state.
        seconds: between two of them.
    """

    def __init__(self, path: Path, module: nn.Module, optimizers: Optimizers, seconds: float = 150.0) -> None:
        self.path, self.module, self.optimizers, self.seconds = path, module, optimizers, seconds
        self.last = time.monotonic()

    def end_step(self, steps: int, last: bool = False) -> None:
        """Write one after `steps` steps, if it is time or the last one."""
        if last or time.monotonic() - self.last >= self.seconds:
            save_checkpoint(self.path, self.module, self.optimizers, steps)
            self.last = time.monotonic()


def load_checkpoint(path: Path, module: nn.Module, optimizers: Optimizers | None = None) -> int:
    """Load weights (and optimizer state) in place; return the step, 0 where there is no file.

    The `model.safetensors` of a finished model folder will do too, for the whole model: its step is 0.

    Raises:
        ValueError: the file lacks a weight of the module.
    """
    if not path.exists():
        return 0
    with safe_open(path, framework="pt") as file:
        keys = set(file.keys())
        states: dict[str, dict[str, torch.Tensor]] = {}
        for key in keys:
            if key.startswith("state."):
                _, kind, name = key.split(".", 2)
                states.setdefault(name, {})[kind] = file.get_tensor(key)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                key = f"weight.{name}" if f"weight.{name}" in keys else name
                if key not in keys:
                    raise ValueError(f"checkpoint {path} has no weight {name!r}; it belongs to another model")
                parameter.copy_(file.get_tensor(key))
                if optimizers is not None and name in states:
                    optimizers.restore(parameter, states[name])
        return int((file.metadata() or {}).get("step", 0))
