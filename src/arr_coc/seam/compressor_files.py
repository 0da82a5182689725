"""Files of learned compressors in an allocator's folder: `<name>.safetensors` each, in bfloat16.

    save_convs(convs, folder)
    load_convs(folder, dim)     frozen, by name; those without a file are left out

A compressor inside the tower says in the file's metadata after how many blocks it works, and on which
windows.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from arr_coc.files.saved import check_finite, made_folder, reading, write_tensors
from arr_coc.seam.gestalt import CONVS, ConvCompressor, Convs
from arr_coc.seam.tower_compressor import TOWERS, TowerCompressor

MOST_BLOCKS, MOST_CELLS = 1000, 1000
"""Of the lower half of a tower, and along each side of its windows."""


def save_convs(convs: Convs, folder: str | Path) -> None:
    """Write trained compressors, one `<name>.safetensors` each, in bfloat16, into an allocator's folder."""
    place = made_folder(Path(folder))
    for name, conv in convs.items():
        weights = {key: value.to(torch.bfloat16) for key, value in conv.state_dict().items()}
        numbers = None
        if isinstance(conv, TowerCompressor):
            numbers = {"first": str(conv.first), "window": str(conv.window)}
        write_tensors(weights, place / f"{name}.safetensors", numbers)


def load_convs(folder: str | Path, dim: int) -> dict[str, nn.Module]:
    """Load the trained compressors of an allocator's folder, frozen; every weight must be there and fit.

    Args:
        folder: the one given to `save_convs`.
        dim: D, width of the base model's tokens.

    Returns:
        By name; those without a file are left out.

    Raises:
        ValueError: a file that is no safetensors, or whose weights are missing, left over or of other shapes.
    """
    convs: dict[str, nn.Module] = {}
    for name, factor in {**CONVS, **TOWERS}.items():
        path = Path(folder) / f"{name}.safetensors"
        if not path.is_file():
            continue
        what = f"for tokens of width {dim}" if name in CONVS else "inside a vision tower"
        with reading(
            f"{str(path)!r} is no compressor of factor {factor} {what}",
            "copy it there again, or remove it to do without",
        ):
            with safe_open(path, "pt") as file:
                weights = {key: file.get_tensor(key) for key in file.keys()}
                numbers = file.metadata() or {}
            check_finite(weights)
            conv = _inside(weights, numbers, factor) if name in TOWERS else _after(weights, dim, factor)
            conv.load_state_dict(weights, strict=True)
        convs[name] = conv.eval().requires_grad_(False)
    return convs


def _after(weights: dict[str, Tensor], dim: int, factor: int) -> nn.Module:
    levels = {key.split(".")[1] for key in weights if key.startswith("levels.")}
    return ConvCompressor(dim, factor, len(levels))


def _inside(weights: dict[str, Tensor], numbers: dict[str, str], factor: int) -> nn.Module:
    first, window = int(numbers["first"]), int(numbers["window"])
    if not (1 <= first <= MOST_BLOCKS and 1 <= window <= MOST_CELLS):
        raise ValueError(f"first is {first} and window {window}")
    return TowerCompressor(len(weights["norm.weight"]), factor, first, window)
