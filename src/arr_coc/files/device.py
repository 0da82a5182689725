"""Turn names of devices and dtypes into torch objects."""

from __future__ import annotations

import torch

DTYPES = ("float32", "bfloat16", "float16")  # of base models


def resolve_device(name: str | torch.device | None = "auto") -> torch.device:
    """Return the torch device with a name, checked to be usable on this machine.

    Args:
        name: "auto" or None for the accelerator (CUDA, MPS, ...) or else the CPU; or a torch name such as
            "cpu", "cuda:1" or "mps"; or a device.

    Raises:
        ValueError: an unknown name, or a device that this machine lacks.
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name is None or name == "auto":
        return accelerator or torch.device("cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device {str(name)!r} is unknown: use auto, cpu, cuda, cuda:1 or mps") from error
    counts = {} if accelerator is None else {accelerator.type: torch.accelerator.device_count()}
    counts["cpu"] = 1
    if (device.index or 0) >= counts.get(device.type, 0):
        usable = [
            kind if count == 1 else f"{kind}:{i}" for kind, count in counts.items() for i in range(count)
        ]
        lacks_cuda = device.type == "cuda" and not torch.backends.cuda.is_built()
        built = " (this torch is built without CUDA)" if lacks_cuda else ""
        raise ValueError(
            f"device {str(device)!r} can't be used on this machine{built}: use auto, or one of "
            f"{', '.join(usable)}"
        )
    return device


def resolve_dtype(name: str | torch.dtype | None) -> torch.dtype | None:
    """Return a dtype by its name; None (as saved) for "auto" and None; ValueError if not in `DTYPES`."""
    if name is None or name == "auto" or (isinstance(name, torch.dtype) and name.is_floating_point):
        return name if isinstance(name, torch.dtype) else None
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is unknown: use auto, {', '.join(DTYPES)}")
    return getattr(torch, name)
