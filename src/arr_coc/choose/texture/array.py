"""`generate_texture_array`: its inputs checked, its channel groups computed and joined."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose.texture.basis import Basis
from arr_coc.choose.texture.cache import TextureCache
from arr_coc.choose.texture.context import OPTIONAL_INPUTS, ChannelContext, Grid2D
from arr_coc.choose.texture.registry import ChannelGroup, Channels, channel_groups

TOLERANCE = 0.01
"""How far outside [0, 1] a value may lie: undoing a normalisation in bfloat16 is half a percent off."""
UNBOUNDED = ("features", "coarse_features")
"""Optional inputs of any finite value; the others lie in [0, 1]."""


@torch.no_grad()
def generate_texture_array(
    image: Tensor,
    grid: Grid2D,
    channels: Channels = "mvp13",
    *,
    features: Tensor | None = None,
    previous_frames: Tensor | None = None,
    previous_relevance: Tensor | None = None,
    relevance_history: Tensor | None = None,
    attention_history: Tensor | None = None,
    text_evidence: Tensor | None = None,
    coarse_features: Tensor | None = None,
    basis: Basis | None = None,
    cache: TextureCache | None = None,
) -> Tensor:
    """Describe every cell of an image by cheap features of its pixels.

    The optional inputs are for groups that need them or read them where they are supplied: without, the
    latter have the neutral values that `ChannelGroup.neutral` says. A first frame of a clip has none before
    it: pass nothing, and it is a still; for a group of yours that needs frames, the frame itself.

    Args:
        image: Float [B, 3, h, w] in [0, 1], RGB, any size from 1x1 px.
        grid: (H, W), the merged token grid.
        channels: A preset ("mvp13", "fast13", "full20", "full40") or a list of names of channel groups.
        features: Float [B, D, H, W], features of a vision encoder on the grid.
        previous_frames: Float [B, T, 3, h, w] in [0, 1], the frames before the image, oldest first.
        previous_relevance: Float [B, H, W] in [0, 1], relevance of the cells in the frame before.
        relevance_history: Float [B, T', H, W] in [0, 1], likewise of the latest T' frames, oldest first.
        attention_history: Float [B, Q, H, W] in [0, 1], where earlier questions looked, oldest first.
        text_evidence: Float [B, h', w'] in [0, 1], how likely print stands at each place of the image, such
            as `guide.print_evidence.text_evidence` of the guide's eyes.
        coarse_features: Float [B, F, h', w'], features of a vision encoder on a coarse view of the image,
            such as `seam.encoder_features.coarse_features`.
        basis: Of the encoder of `coarse_features`, by `fit_basis`.
        cache: Of channels of earlier calls; groups whose inputs are the very same tensors are not computed
            again.

    Returns:
        [B, C, H, W] in [0, 1], dtype and device of `image`, without gradient.

    Raises:
        ValueError: an input is not of that shape, kind and range (NaN included) or lies on another
            device than the image, the grid is empty, or a group is unknown, needs an input that is not
            supplied, or returns another shape than it declares. Reading a range back from an
            accelerator would wait for it: there an image out of range has a texture of NaN, which the
            allocator refuses by name.
    """
    if image.ndim != 4 or image.shape[1] != 3 or 0 in image.shape or not image.is_floating_point():
        raise ValueError(
            f"image must be float [B, 3, h, w], got {image.dtype} {tuple(image.shape)}; "
            "add a batch dimension, drop alpha, divide bytes by 255"
        )
    if len(grid) != 2 or min(grid) < 1:
        raise ValueError(f"grid must be (H, W) with at least one cell each way, got {grid}")
    (b, _, h, w), (rows, columns) = image.shape, grid
    optional = {
        name: _conforming(name, value, shape, image.device)
        for name, value, shape in (
            ("features", features, (b, None, rows, columns)),
            ("previous_frames", previous_frames, (b, None, 3, h, w)),
            ("previous_relevance", previous_relevance, (b, rows, columns)),
            ("relevance_history", relevance_history, (b, None, rows, columns)),
            ("attention_history", attention_history, (b, None, rows, columns)),
            ("text_evidence", text_evidence, (b, None, None)),
            ("coarse_features", coarse_features, (b, None, None, None)),
        )
        if value is not None
    }
    groups, here = channel_groups(channels), set(optional) | ({"basis"} if basis is not None else set())
    for group in groups:
        _check_needs(group, here)

    values = image.float().contiguous()
    sound = _in_unit_range("image", values)  # (B,)
    for name, value in optional.items():
        sound = sound & (_finite(name, value) if name in UNBOUNDED else _in_unit_range(name, value))
    optional = {n: v if n in UNBOUNDED else v.clamp(0, 1) for n, v in optional.items()}
    own = None if basis is None else basis.to(image.device)
    context = ChannelContext(values.clamp(0, 1), (rows, columns), **optional, basis=own)
    sources: dict[str, object] = {
        "image": image,
        "features": features,
        "previous_frames": previous_frames,
        "previous_relevance": previous_relevance,
        "relevance_history": relevance_history,
        "attention_history": attention_history,
        "text_evidence": text_evidence,
        "coarse_features": coarse_features,
        "basis": basis,
    }
    kept = TextureCache() if cache is None else cache
    with _full_precision(image.device):
        parts = [
            kept.part(group, context.grid, sources, lambda group=group: _channels(group, context))
            for group in groups
        ]
    texture = torch.cat(parts, dim=1)
    return texture.where(sound.view(-1, 1, 1, 1), torch.nan).to(image.dtype)


def _full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """A context without autocast, in which a matrix product of float32 is one of float32."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def _conforming(name: str, value: Tensor, shape: tuple[int | None, ...], device: torch.device) -> Tensor:
    """An optional input in float32; a ValueError if it is not float, of that shape and on that device."""
    fits = value.ndim == len(shape) and 0 not in value.shape
    if not fits or any(b not in (None, a) for a, b in zip(value.shape, shape, strict=True)):
        expected = ", ".join("any" if side is None else str(side) for side in shape)
        raise ValueError(
            f"{name} must be {OPTIONAL_INPUTS[name]}, here [{expected}], got {tuple(value.shape)}"
        )
    if not value.is_floating_point():
        raise ValueError(f"{name} must be {OPTIONAL_INPUTS[name]}, got {value.dtype}; convert it")
    if value.device != device:
        raise ValueError(f"{name} is on {value.device} and the image on {device}; move it there")
    return value.float().contiguous()


def _check_needs(group: ChannelGroup, supplied: set[str]) -> None:
    """A ValueError that names the group and the first optional input that it needs and does not get."""
    for need in sorted(set(group.needs) - supplied):
        raise ValueError(
            f"channel group {group.name!r} needs {need}, which is not supplied; pass `{need}` "
            f"({OPTIONAL_INPUTS[need]}) to generate_texture_array, or leave the group out of `channels`"
        )


def _in_unit_range(name: str, values: Tensor) -> Tensor:
    """Which rows lie in [0, 1], [B, ...] -> bool [B]; on a CPU it is an error if one does not."""
    low, high = values.flatten(1).amin(1), values.flatten(1).amax(1)  # (B,)
    sound = (low >= -TOLERANCE) & (high <= 1 + TOLERANCE)
    if values.device.type == "cpu" and not bool(sound.all()):
        remedy = "divide bytes by 255" if name in ("image", "previous_frames") else "scale it"
        raise ValueError(f"{name} values must lie in [0, 1], got {low.min():g} to {high.max():g}; {remedy}")
    return sound


def _finite(name: str, values: Tensor) -> Tensor:
    """Which rows are finite, [B, ...] -> bool [B]; on a CPU it is an error if one is not."""
    sound = values.flatten(1).isfinite().all(1)
    if values.device.type == "cpu" and not bool(sound.all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity; check the encoder that made it")
    return sound


def _channels(group: ChannelGroup, context: ChannelContext) -> Tensor:
    """The channels of one group, [B, count, H, W] in [0, 1]; a ValueError if its shape is another."""
    part = group.compute(context)
    if part.shape != (len(context.image), group.count, *context.grid):
        raise ValueError(
            f"channel group {group.name!r} returned {tuple(part.shape)} for a grid of {context.grid}"
        )
    return part.clamp(0, 1)
