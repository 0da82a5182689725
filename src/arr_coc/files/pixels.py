"""Turn opened images into tensors, and compare what two pictures show."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from PIL.Image import Image
from torch import Tensor

from arr_coc.files.images import ImageSource, open_image

SAME_IMAGE_MAX_DIFF = 0.04  # the most two resampled pictures of one thing differ, mean over pixels in [0, 1]
COMPARED_PX = 64  # along each side of the pictures that are compared


def image_pixels(image: ImageSource, device: torch.device | None = None) -> Tensor:
    """Open any image as float [1, 3, h, w] in [0, 1], on a device; None: the CPU."""
    return float_pixels(open_image(image), device)


def float_pixels(image: Image, device: torch.device | None = None) -> Tensor:
    """Return an opened image as float [1, 3, h, w] in [0, 1], on a device; None: the CPU."""
    pixels = np.moveaxis(np.asarray(image), 2, 0).copy()  # as bytes they are soon moved
    return torch.from_numpy(pixels).to(device)[None].float().div_(255)


def same_picture(one: Tensor, other: Tensor, px: int = COMPARED_PX) -> bool:
    """Return whether two pictures [3, h, w] in [0, 1], of any sizes, look the same at `px` a side."""
    small = [F.interpolate(x[None].float(), (px, px), mode="area") for x in (one, other)]
    return float((small[0] - small[1]).abs().mean()) <= SAME_IMAGE_MAX_DIFF
