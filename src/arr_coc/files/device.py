"""Names of devices and dtypes, as options and arguments give them, turned into torch's own.

resolve_device("auto") -> device(type='cuda')     on a machine with a CUDA GPU
resolve_dtype("bfloat16") -> torch.bfloat16
"""

from __future__ import annotations

import torch

DTYPES = ("float32", "bfloat16", "float16")
"""Names of dtypes that a base model can be loaded in."""
_PREFERRED = ("cuda", "mps", "cpu")


def resolve_device(name: str | torch.device | None = "auto") -> torch.device:
    """The torch device of a name, checked to be usable on this machine.

    Args:
        name: "auto" or None: the first there is of CUDA, MPS and the CPU; else a name that torch knows, such
            as "cpu", "cuda", "cuda:1" or "mps"; or a device.

    Raises:
        ValueError: no device has that name, or this machine has none of it.
    """
    if name is None or name == "auto":
        return torch.device(next(kind for kind in _PREFERRED if _count(kind)))
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device {str(name)!r} is unknown: use auto, cpu, cuda, cuda:1 or mps") from error
    if (device.index or 0) >= _count(device.type):
        usable = ", ".join(place for kind in _PREFERRED for place in _places(kind))
        built = " (this torch is built without CUDA)" if device.type == "cuda" and not _has_cuda() else ""
        raise ValueError(
            f"device {str(device)!r} can't be used on this machine{built}: use auto, or one of {usable}"
        )
    return device


def resolve_dtype(name: str | torch.dtype | None) -> torch.dtype | None:
    """The torch dtype of a name; None, which means as the weights were saved, for "auto" and None.

    Raises:
        ValueError: another name than "auto" and those of `DTYPES`.
    """
    if name is None or name == "auto" or isinstance(name, torch.dtype):
        return name if isinstance(name, torch.dtype) else None
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is unknown: use auto, {', '.join(DTYPES)}")
    return getattr(torch, name)


def _count(kind: str) -> int:
    """How many devices of a kind torch can use here."""
    if kind == "cpu":
        return 1
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    try:
        module = torch.get_device_module(kind)
    except RuntimeError:  # a kind without a backend: "meta", or one that this build of torch lacks
        return 0
    return module.device_count() if module.is_available() else 0


def _places(kind: str) -> list[str]:
    """Names of the devices of a kind: the kind alone where there is only one."""
    count = _count(kind)
    return [kind] * count if count < 2 else [f"{kind}:{i}" for i in range(count)]


def _has_cuda() -> bool:
    """Whether this torch can drive a CUDA or ROCm GPU at all."""
    return torch.backends.cuda.is_built()
