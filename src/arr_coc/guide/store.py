"""The guide's file: written from a guide that learned, read as one that runs.

    save_guide(guide, folder)          bfloat16, one safetensors file
    load_guide() -> Guide              the bundled one, once per process

A loaded guide is frozen and in evaluation mode; its batch norms are folded into its convolutions, which lie
in memory channels last. Where bfloat16 is fast (on a GPU, or a CPU with instructions for it) all but the
vectors of words and the last layer compute in it. Neither changes a result by more than rounding.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from arr_coc.files.device import resolve_device, resolve_dtype
from arr_coc.files.paths import local_path
from arr_coc.files.provenance import check_records
from arr_coc.files.saved import BUNDLED, check_finite, made_folder, reading, write_tensors
from arr_coc.guide.guide import Guide

FILE = "guide.safetensors"
FORMAT = "arr-coc guide 5"
FOLDER = BUNDLED / "guide"
"""Of the bundled guide."""
PLACE = "guide"
"""Folder of a guide inside that of an allocator that goes by it."""


def save_guide(guide: Guide, folder: str | Path, trained_on: Sequence[dict[str, Any]] = ()) -> None:
    """Write a guide: tables and matrices in bfloat16, all else in float32, such as what batch norms count.

    Args:
        guide: as it was trained, not one of `load_guide`.
        folder: made if it is missing.
        trained_on: records of how it was made, see `files.provenance`.

    Raises:
        ValueError: a guide that was loaded to run, no such records, or a folder that can't be made.
    """
    if not any(isinstance(part, nn.BatchNorm2d) for part in guide.modules()):
        raise ValueError(
            "a guide of load_guide has no batch norms left to save: save the one that was trained"
        )
    records = check_records(list(trained_on))
    tensors = {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() and tensor.ndim > 1 else tensor
        for name, tensor in guide.state_dict().items()
    }
    place = made_folder(local_path(folder))
    write_tensors(tensors, place / FILE, {"format": FORMAT, "trained_on": json.dumps(records)})
    _load.cache_clear()  # one of this folder may be another now


def load_guide(
    folder: str | Path | None = None,
    dtype: str | torch.dtype | None = "auto",
    device: str | torch.device | None = "cpu",
) -> Guide:
    """Load a guide, ready to run; the same one for the same arguments until `save_guide` writes another.

    Args:
        folder: of `save_guide` or `arr-coc train guide --out`; None: the bundled one.
        dtype: "float32", "bfloat16" or "float16"; "auto" or None: bfloat16 where it is fast, else float32.
        device: where it runs.

    Raises:
        ValueError: no such file, or one that is no guide of this version.
    """
    place = (FOLDER if folder is None else local_path(folder)).absolute()
    where = resolve_device(device)
    return _load(place / FILE, resolve_dtype(dtype) or fast_dtype(where), where)


def guide_folder(folder: str | Path) -> Path:
    """The folder of a guide that can be loaded, absolute: it stays the same in another working directory.

    Raises:
        ValueError: as `load_guide`.
    """
    load_guide(folder)
    return local_path(folder).absolute()


@lru_cache(maxsize=4)
def _load(path: Path, dtype: torch.dtype, device: torch.device) -> Guide:
    if not path.is_file():
        raise ValueError(
            f"{str(path.parent)!r} has no guide ({FILE}): give a folder that arr-coc train guide --out made"
        )
    with reading(f"{str(path)!r} is not a saved guide", "copy it again, or make it with arr-coc train guide"):
        with safe_open(path, framework="pt") as file:
            stated = (file.metadata() or {}).get("format")
            if stated != FORMAT:
                raise ValueError(f"format {stated!r}, need {FORMAT!r}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        weights = {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
        check_finite(weights)
        guide = Guide()
        guide.load_state_dict(weights, strict=True)
    return prepared(guide, dtype).to(device)


def prepared(guide: Guide, dtype: torch.dtype) -> Guide:
    """Make a guide ready to run, in place; see the module."""
    guide.eval().requires_grad_(False)
    for part in list(guide.modules()):
        if isinstance(part, nn.Sequential):
            _fold(part)
    guide.to(memory_format=torch.channels_last)
    for part in (guide.eyes, guide.pages, guide.reader, guide.head):
        part.to(dtype)
    guide.head.last.float()
    if dtype == torch.bfloat16:  # of the range of float32, which the weights of its words need
        guide.glossary.to(dtype)
    return guide


def _fold(layers: nn.Sequential) -> None:
    """Fold each batch norm of a sequence into the convolution before it, in place."""
    for i in range(len(layers) - 1):
        conv, norm = layers[i], layers[i + 1]
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            layers[i], layers[i + 1] = fuse_conv_bn_eval(conv, norm), nn.Identity()


def fast_dtype(device: torch.device) -> torch.dtype:
    """The dtype that convolutions are fastest in: bfloat16 on a GPU or a CPU with instructions for it."""
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported()
    else:
        supports = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # torch names none in public
        fast = device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in supports)
    return torch.bfloat16 if fast else torch.float32
