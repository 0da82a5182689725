"""Pictures in [0, 1] from preprocessed pixels: detection of normalisation, and its inverse.

A processor rescales 8-bit pixels to k / 255 and then, unless a call says `do_normalize=False`, maps them to
(k / 255 - mean) / std. Pixels below 0 or above 1 are normalised. Where all lie in [0, 1] (a pale picture, or
one that was not normalised) the 256 levels decide: after the inverse, normalised pixels are whole levels.

These are functions of tensors alone; pictures are [3, h, w], of any size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LEVELS = 255
SLACK = 1e-3
"""How far a pixel may lie outside [0, 1] by rounding."""
OFF_LEVEL = 0.1
"""Mean distance to the nearest level, in levels, above which pixels aren't whole levels. Measured on random
pictures: float32 1e-5, float16 0.03; 0.25 under the wrong hypothesis, and in bfloat16 under both."""


def are_normalised(pictures: Sequence[Tensor], mean: Tensor, std: Tensor, usual: bool = True) -> bool:
    """Whether preprocessed pictures were normalised.

    Args:
        pictures: float32 [3, h, w] each, of one call of a processor.
        mean: [3, 1, 1], of the processor.
        std: [3, 1, 1].
        usual: whether the processor normalises by default; decides where the pixels don't.
    """
    bounds = torch.stack([torch.stack(picture.aminmax()) for picture in pictures])  # (images, 2)
    if bool(bounds.min() < -SLACK) or bool(bounds.max() > 1 + SLACK):
        return True
    if not usual:
        return False
    undone = [picture * std.to(picture) + mean.to(picture) for picture in pictures]
    return not (off_level(undone) > OFF_LEVEL >= off_level(pictures))


def off_level(pictures: Sequence[Tensor]) -> float:
    """Mean distance of pixels to the nearest of the levels k / 255, in levels: 0 to 0.5."""
    scaled = torch.cat([picture.flatten() for picture in pictures]) * LEVELS
    return float((scaled - scaled.round()).abs().mean())


def undo_normalisation(
    pictures: Sequence[Tensor], mean: Tensor, std: Tensor, usual: bool = True
) -> list[Tensor]:
    """Pictures in [0, 1] from preprocessed ones; those that were not normalised are only clamped.

    Args:
        pictures: float32 [3, h, w] each, of one call of a processor.
        mean: [3, 1, 1], of the processor.
        std: [3, 1, 1].
        usual: as in `are_normalised`.
    """
    if not are_normalised(pictures, mean, std, usual):
        return [picture.clamp(0.0, 1.0) for picture in pictures]
    return [p.mul(std.to(p)).add_(mean.to(p)).clamp_(0.0, 1.0) for p in pictures]
