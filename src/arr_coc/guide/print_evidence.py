"""Where print stands in a picture, whatever it says: the guide's eyes as a detector of text.

    text_evidence(load_guide(), picture [3, h, w]) -> [h / 8, w / 8] in [0, 1]

For the texture group "text_mask". The eyes were taught to tell the characters of print; the evidence is how
sure they are of the likeliest one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.texture import Channels, channel_groups
from arr_coc.guide.eyes import contrast, luminance
from arr_coc.guide.guide import MULTIPLE, Guide
from arr_coc.guide.store import load_guide

MADE = frozenset({"text_evidence"})
"""What is made for channel groups that need it, beside what they read where it is at hand."""
SIDE = 8
"""Side in px of a place."""


@torch.no_grad()
def text_evidence(guide: Guide, picture: Tensor) -> Tensor:
    """How likely print stands at each place of a picture.

    The first half of the eyes alone is run, on the picture and on the picture at half its size, where larger
    print is told: about a quarter of what a whole look of the guide takes.

    Args:
        guide: of `load_guide`.
        picture: float [3, h, w] in [0, 1], any size.

    Returns:
        Float32 [ceil(h / 8), ceil(w / 8)] in [0, 1], on the device of `picture`.

    Raises:
        ValueError: a picture of another shape.
    """
    if picture.ndim != 3 or len(picture) != 3 or 0 in picture.shape:
        raise ValueError(f"picture must be [3, h, w], got {tuple(picture.shape)}; pass one picture in RGB")
    height, width = picture.shape[-2:]
    pad = (0, -width % MULTIPLE, 0, -height % MULTIPLE)
    light = luminance(F.pad(picture[None].float(), pad, mode="replicate"))
    near, half = _printed(guide, light), _printed(guide, F.avg_pool2d(light, 2))
    evidence = torch.maximum(near, half.repeat_interleave(2, -2).repeat_interleave(2, -1))
    return evidence[: -(-height // SIDE), : -(-width // SIDE)]


def picture_inputs(channels: Channels, picture: Tensor) -> dict[str, Any]:
    """What channels need or read that is made of a picture alone, for `generate_texture_array`.

    What else they need is up to the caller (`check_channels` where there is nothing else).

    Args:
        channels: a preset or a list of channel groups.
        picture: float [3, h, w] in [0, 1].

    Returns:
        `text_evidence` [1, h / 8, w / 8] by the bundled guide, where a group wants it; else nothing.
    """
    if not any("text_evidence" in {*group.needs, *group.reads} for group in channel_groups(channels)):
        return {}
    return {"text_evidence": text_evidence(load_guide(device=picture.device), picture)[None]}


def check_channels(channels: Channels) -> None:
    """Raise a ValueError where a channel group needs what nobody makes of a picture alone.

    That is "components" among the built-in ones, which needs features of an encoder with a basis of its own.
    Groups that read earlier frames or questions where they are at hand do without: their values are neutral.

    Args:
        channels: a preset or a list of channel groups, of a layer that is to choose without a model.
    """
    for group in channel_groups(channels):
        if lacking := sorted({*group.needs} - MADE):
            raise ValueError(
                f"channel group {group.name!r} needs {' and '.join(lacking)}, which a picture alone doesn't "
                "give: leave it out of the layer's channels ('full20' has none such), use ARRCOCModel, or "
                "call the layer yourself with texture_inputs"
            )


def _printed(guide: Guide, light: Tensor) -> Tensor:
    """How sure the eyes are of the likeliest character at each place, [1, 1, h, w] -> [h / 8, w / 8]."""
    eyes = guide.eyes
    x = contrast(light).to(eyes.characters.weight.dtype, memory_format=torch.channels_last)
    return eyes.characters(eyes.stem(x)).amax(1)[0].float().sigmoid()  # the largest stays the largest
