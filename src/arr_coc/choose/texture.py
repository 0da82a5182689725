"""The texture array: cheap features in [0, 1] of every cell of an image, from its pixels.

    generate_texture_array(image [B, 3, h, w], grid=(H, W), channels) -> [B, C, H, W]

- Channels come in named groups. `CHANNEL_GROUPS` is the registry, `PRESETS` names lists of groups, and
  `register_channel_group(ChannelGroup(...))` adds a group; the built-in ones are in `groups`, a file each.
- A group computes from a `ChannelContext`: the image, the grid, maps that groups share and, where the
  caller passes them, encoder features and their `Basis`, evidence of print, the frames before, their
  relevance, and where earlier questions looked. What a group needs and does not get is an error; what it
  reads where it is there has a neutral value otherwise.
- A `TextureCache` keeps channels between calls by what their groups depend on.
- Any aspect ratio and any grid (it need not divide the image, and may be finer than it); deterministic;
  no gradient. Computed in float32, returned in the dtype and on the device of the image.
- Channels are scaled by fixed constants, never by the other images of a batch or by the image's own
  maximum: a blank page stays dark.
- On an accelerator no value is read back, so nothing waits for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose.channels import (
    CHANNEL_GROUPS,
    COARSE,
    COMPONENTS,
    COSTS,
    OPTIONAL_INPUTS,
    PRESETS,
    SPECTRUM_SIZE,
    Basis,
    ChannelContext,
    ChannelGroup,
    Channels,
    Clip,
    Grid2D,
    cell_mean,
    centre_surround,
    channel_groups,
    channel_names,
    colour_opponency,
    distance_to,
    fit_basis,
    lab_hue,
    laplacian,
    moved,
    phase_shift,
    position_grid,
    register_channel_group,
    sobel,
    spectral_residual,
    surround,
    texture_size,
)

Pixels = ChannelContext
"""The context's name while it held pixels alone."""

__all__ = [
    "generate_texture_array",
    "ChannelContext", "ChannelGroup", "Channels", "Grid2D",
    "CHANNEL_GROUPS", "PRESETS", "COSTS", "OPTIONAL_INPUTS",
    "register_channel_group", "channel_groups", "channel_names", "texture_size",
    "Basis", "fit_basis", "COMPONENTS", "TextureCache", "Clip", "phase_shift", "moved",
    "cell_mean", "sobel", "laplacian", "surround", "distance_to", "position_grid", "COARSE",
    "spectral_residual", "centre_surround", "lab_hue", "colour_opponency", "SPECTRUM_SIZE",
    "Pixels",
]  # fmt: skip


# A cache of channels between calls, each kept as long as the inputs that its group depends on stay the same.
#
#     cache = TextureCache()
#     generate_texture_array(page, grid, "full20", cache=cache)
#     generate_texture_array(page, grid, "full20", attention_history=maps, cache=cache)   one group is
# computed
#
# A second question about a picture computes what depends on questions; a second frame what depends on
# frames.
# The modes keep one for each picture of a session (`modes.scoring`).


class _Sameness:
    """Whether an input is the very one of before: the same object, not written to since, held weakly."""

    def __init__(self, value: object) -> None:
        self.reference = None if value is None else weakref.ref(value)
        self.version = _version(value)

    def holds(self, value: object) -> bool:
        """Whether `value` is that input, unchanged."""
        before = None if self.reference is None else self.reference()
        return (
            before is value
            and (self.reference is None or value is not None)
            and (self.version == _version(value))
        )


def _version(value: object) -> int | None:
    """How often a tensor was written to; None where that is not counted."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


@dataclass
class TextureCache:
    """Channels of groups by name and grid, with the inputs that they were computed from.

    An input is the same if it is the same object and was not written to; one of `torch.inference_mode`, of
    which that is not counted, must not be written to. Inputs are not kept alive. One array of channels is
    kept for each group and grid, that of the last call.

    Attributes:
        fixed: inputs that whoever owns the cache vouches for: they stay the same as long as it lives, though
            the tensors may be made anew for each call.
        computed: how often a group was computed, by its name.
    """

    fixed: Collection[str] = frozenset()
    computed: dict[str, int] = field(default_factory=dict)
    _parts: dict[tuple[str, tuple[int, int]], tuple[ChannelGroup, dict[str, _Sameness], Tensor]] = field(
        default_factory=dict, repr=False
    )

    def part(
        self,
        group: ChannelGroup,
        grid: tuple[int, int],
        sources: Mapping[str, object],
        compute: Callable[[], Tensor],
    ) -> Tensor:
        """The channels of a group, [B, count, H, W] float32: those of before if nothing that matters changed.

        Args:
            group: the group.
            grid: (H, W).
            sources: every input of the call by its name; None where it was not supplied.
            compute: makes the channels.
        """
        image = sources["image"]
        depends = {name: sources[name] for name in group.depends - frozenset(self.fixed)}
        before = self._parts.get((group.name, grid))
        if before is not None and isinstance(image, Tensor):
            same, marks, part = before
            fits = part.device == image.device and len(part) == len(image) and same == group
            if fits and all(marks[name].holds(value) for name, value in depends.items()):
                return part
        part = compute()
        self.computed[group.name] = self.computed.get(group.name, 0) + 1
        self._parts[group.name, grid] = (group, {n: _Sameness(v) for n, v in depends.items()}, part)
        return part

    def whole(self, groups: Sequence[ChannelGroup], grid: tuple[int, int]) -> Tensor | None:
        """The channels of groups [B, C, H, W], where all are kept and follow from what is fixed; else None.

        Nothing has to be made for them then: not even the picture.
        """
        parts: list[Tensor] = []
        for group in groups:
            same, _, part = self._parts.get((group.name, grid), (None, None, None))
            if part is None or same != group or group.depends - frozenset(self.fixed):
                return None
            parts.append(part)
        return torch.cat(parts, dim=1) if parts else None

    def clear(self) -> None:
        """Forget all channels."""
        self._parts.clear()
        self.computed.clear()


# `generate_texture_array`: its inputs checked, its channel groups computed and joined.

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
            as `guide.guide.text_evidence` of the guide's eyes.
        coarse_features: Float [B, F, h', w'], features of a vision encoder on a coarse view of the image,
            such as `seam.gestalt.coarse_features`.
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
