"""Pictures from NumPy arrays and torch tensors, exactly as their values say or refused with shape and type.

array_picture(array [H, W], [H, W, 1|3|4])            -> PIL image in mode L, RGB or RGBA
tensor_picture(tensor [H, W], [C, H, W] or [H, W, C]) -> the same

Values: uint8; bool; or floating point in [0, 1]. Nothing is rescaled by guessing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor

CHANNELS = (1, 3, 4)
"""Gray, RGB, and RGB with opacity."""
SLACK = 1e-3
"""How far a value may lie outside [0, 1] by rounding: a quarter of an 8-bit level."""


def array_picture(array: np.ndarray, most: int) -> Image.Image:
    """A picture of an array [H, W] or [H, W, C] with 1, 3 or 4 channels.

    Args:
        array: uint8, bool, or floating point in [0, 1].
        most: the most pixels that are converted; larger arrays are refused before anything is copied.

    Raises:
        ValueError: another shape or type, NaN or infinity, values outside [0, 1], or too many pixels.
    """
    label = f"image array of shape {tuple(array.shape)} and dtype {array.dtype}"
    if np.ma.is_masked(array):
        raise ValueError(f"{label} has masked values: fill them, as array.filled(0) does")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in CHANNELS):
        raise ValueError(f"{label} is no picture: give one as (H, W), (H, W, 3) or (H, W, 4)")
    _check_size(array.shape[0], array.shape[1], label, most)
    return _picture(np.asarray(array), label)


def tensor_picture(tensor: Tensor, most: int) -> Image.Image:
    """A picture of a tensor [H, W], [C, H, W] or [H, W, C]; where both fit, the channels come first.

    Arguments and errors are those of `array_picture`.
    """
    kind = str(tensor.dtype).removeprefix("torch.")
    try:
        label = f"image tensor of shape {tuple(tensor.shape)} and dtype {kind}"
    except Exception as error:  # a nested one has no shape
        raise ValueError(f"image tensor of dtype {kind} has no shape: give (H, W) or (3, H, W)") from error
    first, last = (tensor.ndim == 3 and tensor.shape[axis] in CHANNELS for axis in (0, 2))
    if tensor.ndim != 2 and not first and not last:
        raise ValueError(f"{label} is no picture: give (H, W), (3, H, W) or (H, W, 3), without a batch")
    height, width = tensor.shape[1:] if first else tensor.shape[:2]
    _check_size(height, width, label, most)
    try:
        values = tensor.detach().cpu()
        values = values.float() if values.is_floating_point() else values  # NumPy has no bfloat16
        array = (values.movedim(0, 2) if first else values).numpy()
    except Exception as error:
        raise ValueError(
            f"{label} has no pixels that can be read (meta, sparse, quantized?): give a dense tensor, as of "
            "to_dense() or dequantize()"
        ) from error
    return _picture(array, label)


def _check_size(height: int, width: int, label: str, most: int) -> None:
    if not height or not width:
        raise ValueError(f"{label} is empty: give a picture of at least 1x1 px")
    if height * width > most:
        raise ValueError(f"{label} is too large (at most {most:,} px): scale it down or cut out a part")


def _picture(values: np.ndarray, label: str) -> Image.Image:
    """A picture of values [H, W] or [H, W, C] of a legal shape and size."""
    if values.dtype == np.bool_:
        values = values * np.uint8(255)
    elif np.issubdtype(values.dtype, np.floating):
        values = _levels(values, label)
    elif values.dtype != np.uint8:
        raise ValueError(f"{label} has no pixels: give uint8, bool, or floating point in [0, 1]")
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    return Image.fromarray(np.ascontiguousarray(values))


def _levels(values: np.ndarray, label: str) -> np.ndarray:
    """Floating point in [0, 1] as 8-bit levels."""
    low, high = float(values.min()), float(values.max())  # NaN comes through both
    if not np.isfinite([low, high]).all():
        raise ValueError(f"{label} holds NaN or infinity: give finite values in [0, 1]")
    if low < -SLACK or high > 1 + SLACK:
        raise ValueError(
            f"{label} holds {low:.4g} to {high:.4g}: give values in [0, 1], or uint8 for 0 to 255"
        )
    levels = np.empty(values.shape, np.uint8)
    for row, numbers in zip(levels, values, strict=True):  # all at once would take tens of bytes a pixel
        row[...] = np.rint(numbers.clip(0, 1) * 255)
    return levels
