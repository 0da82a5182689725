"""The texture array: cheap features in [0, 1] of every cell of an image, from its pixels.

generate_texture_array(image [B, 3, h, w], grid=(H, W), channels) -> [B, C, H, W]
TextureCache()          keeps channels between calls, each as long as its inputs stay the same
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose import channels_extra as channels_extra  # registers its groups
from arr_coc.choose.basis import Basis
from arr_coc.choose.channels import (
    CHANNEL_GROUPS,
    OPTIONAL_INPUTS,
    PRESETS,
    ChannelContext,
    ChannelGroup,
)
from arr_coc.choose.channels import register_channel_group as register_channel_group
from arr_coc.choose.filters import Grid2D
from arr_coc.files.question import kind_of

Channels = str | Sequence[str]  # the name of a preset, or names of channel groups

TOLERANCE = 0.01  # how far outside [0, 1] a value may lie: bfloat16 is half a percent off


def channel_groups(channels: Channels = "mvp13") -> tuple[ChannelGroup, ...]:
    """Return the groups of a preset's name, or of a list of group names; a ValueError if one is unknown."""
    if isinstance(channels, str) and channels not in PRESETS:
        raise ValueError(
            f"unknown texture preset {channels!r}; use one of {sorted(PRESETS)} or list channel groups"
        )
    names = PRESETS[channels] if isinstance(channels, str) else tuple(channels)
    if not names or (unknown := [n for n in names if n not in CHANNEL_GROUPS]):
        wrong = unknown if names else "an empty list"
        raise ValueError(
            f"unknown channel groups: {wrong}; registered are {sorted(CHANNEL_GROUPS)}; import the module "
            "that registers one of your own first (arr-coc --import MODULE ...)"
        )
    return tuple(CHANNEL_GROUPS[n] for n in names)


def channel_names(channels: Channels = "mvp13") -> tuple[str, ...]:
    """Names of the C channels, in order."""
    return tuple(name for group in channel_groups(channels) for name in group.channels)


def texture_size(channels: Channels = "mvp13") -> int:
    """Number of channels C."""
    return sum(group.count for group in channel_groups(channels))


class _InputMark:
    """An input of an earlier call, recognised as the same object that was not written to since."""

    def __init__(self, value: object) -> None:
        self.reference = None if value is None else weakref.ref(value)
        self.version = _version(value)

    def matches(self, value: object) -> bool:
        if self.reference is None or value is None:
            return self.reference is None and value is None
        return self.reference() is value and self.version == _version(value)


def _version(value: object) -> int | None:
    """Return how often a tensor was written to; None where torch does not count that."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


@dataclass
class TextureCache:
    """The channels of the last call for each group and grid, with the inputs that they were computed from.

    A second question about an image computes only the channels that depend on questions. An input made under
    `torch.inference_mode` must not be written to: torch does not count that.
    """

    fixed: Collection[str] = frozenset()  # names of inputs that stay the same as long as the cache lives
    computed: dict[str, int] = field(default_factory=dict)
    _parts: dict[tuple[str, Grid2D], tuple[ChannelGroup, dict[str, _InputMark], Tensor]] = field(
        default_factory=dict, repr=False
    )

    def part(
        self,
        group: ChannelGroup,
        grid: Grid2D,
        sources: Mapping[str, object],
        compute: Callable[[], Tensor],
    ) -> Tensor:
        """Return the channels of a group, [B, count, H, W] float32: kept ones if its inputs are the same."""
        image = sources["image"]
        depends = {name: sources[name] for name in group.depends - frozenset(self.fixed)}
        before = self._parts.get((group.name, grid))
        if before is not None and isinstance(image, Tensor):
            same, marks, part = before  # the group, too: another may have been registered by its name
            fits = part.device == image.device and len(part) == len(image) and same == group
            if fits and all(marks[name].matches(value) for name, value in depends.items()):
                return part
        part = compute()
        self.computed[group.name] = self.computed.get(group.name, 0) + 1
        self._parts[group.name, grid] = (group, {n: _InputMark(v) for n, v in depends.items()}, part)
        return part


CELL = 32  # pixels per side of a cell by default: Qwen3-VL's 16-px patches, merged 2x2


@torch.no_grad()
def generate_texture_array(
    image: Tensor,
    grid: Grid2D | None = None,
    channels: Channels = "mvp13",
    *,
    cache: TextureCache | None = None,
    **inputs: Tensor | Basis | None,
) -> Tensor:
    """Return the texture array: cheap features of every cell, [B, C, H, W] in [0, 1], dtype and device of
    `image`.

    Deterministic, computed in float32. Channels are scaled by fixed constants, never by the other images of a
    batch or by the image's own maximum: a blank page stays dark.

    Args:
        image: Float [B, 3, h, w] in [0, 1], RGB, any size from 1x1 px.
        grid: (H, W), the merged token grid; it need not divide the image. None: a cell for each 32 x 32 px.
        channels: A preset ("mvp13", "fast13", "full20", "full40") or names of channel groups.
        cache: Channels of earlier calls; a group whose inputs are the same tensors is not computed again.
        **inputs: What groups need or read beside the image, see `OPTIONAL_INPUTS`.

    Raises:
        ValueError: an input is not of its shape, kind, range or device, or a group is unknown or lacks an
            input. On an accelerator no value is read back: a bad image has a texture of NaN, which the
            allocator refuses.
    """
    if unknown := set(inputs) - set(OPTIONAL_INPUTS):
        raise TypeError(f"unknown inputs {sorted(unknown)}; a texture takes {', '.join(OPTIONAL_INPUTS)}")
    if image.ndim != 4 or image.shape[1] != 3 or 0 in image.shape or not image.is_floating_point():
        raise ValueError(
            f"image must be float [B, 3, h, w], got {image.dtype} {tuple(image.shape)}; "
            "add a batch dimension, drop alpha, divide bytes by 255"
        )
    if grid is None:
        grid = (max(1, round(image.shape[2] / CELL)), max(1, round(image.shape[3] / CELL)))
    if len(grid) != 2 or min(grid) < 1:
        raise ValueError(f"grid must be (H, W) with at least one cell each way, got {grid}")
    (b, _, h, w), (rows, columns) = image.shape, grid
    supplied = {name: value for name, value in inputs.items() if value is not None}
    groups = channel_groups(channels)
    sides = {"B": b, "3": 3, "h": h, "w": w, "H": rows, "W": columns}
    checked: dict[str, Any] = {}
    for name, value in supplied.items():
        spec = OPTIONAL_INPUTS[name]
        if not isinstance(value, Tensor if spec.shape else Basis):
            raise ValueError(f"{name} must be {spec.what}, got {kind_of(value)}")
        if isinstance(value, Tensor):
            shape = tuple(sides.get(side) for side in spec.shape.split())
            checked[name] = _conforming(name, value, shape, image.device)
    for group in groups:
        _check_needs(group, set(supplied))

    values = image.float().contiguous()
    sound = _in_unit_range("image", values)  # (B,)
    for name, value in checked.items():
        bounded = OPTIONAL_INPUTS[name].bounded
        sound = sound & (_in_unit_range(name, value) if bounded else _finite(name, value))
        checked[name] = value.clamp(0, 1) if bounded else value
    if isinstance(basis := supplied.get("basis"), Basis):
        checked["basis"] = basis.to(image.device)
    # Values a little outside [0, 1] are rounding; the cache compares the caller's own tensors.
    context = ChannelContext(values.clamp(0, 1), (rows, columns), **checked)
    sources: dict[str, object] = {"image": image, **dict.fromkeys(OPTIONAL_INPUTS), **supplied}
    kept = TextureCache() if cache is None else cache
    with _full_precision(image.device):
        parts = [
            kept.part(group, context.grid, sources, lambda group=group: _channels(group, context))
            for group in groups
        ]
    texture = torch.cat(parts, dim=1)
    # On an accelerator, rows with bad inputs could not be refused without waiting for it.
    return texture.where(sound.view(-1, 1, 1, 1), torch.nan).to(image.dtype)


def _full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without autocast, in which a matrix product of float32 is one of float32."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def _conforming(name: str, value: Tensor, shape: tuple[int | None, ...], device: torch.device) -> Tensor:
    fits = value.ndim == len(shape) and 0 not in value.shape
    if not fits or any(b not in (None, a) for a, b in zip(value.shape, shape, strict=True)):
        expected = ", ".join("any" if side is None else str(side) for side in shape)
        raise ValueError(
            f"{name} must be {OPTIONAL_INPUTS[name].what}, here [{expected}], got {tuple(value.shape)}"
        )
    if not value.is_floating_point():
        raise ValueError(f"{name} must be {OPTIONAL_INPUTS[name].what}, got {value.dtype}; convert it")
    if value.device != device:
        raise ValueError(f"{name} is on {value.device} and the image on {device}; move it there")
    return value.float().contiguous()


def _check_needs(group: ChannelGroup, supplied: set[str]) -> None:
    for need in sorted(set(group.needs) - supplied):
        raise ValueError(
            f"channel group {group.name!r} needs {need}, which is not supplied; pass `{need}` "
            f"({OPTIONAL_INPUTS[need].what}) to generate_texture_array, or leave the group out of `channels`"
        )


def _in_unit_range(name: str, values: Tensor) -> Tensor:
    """Return which rows lie in [0, 1], [B, ...] -> bool [B]; on a CPU it is an error if one does not."""
    low, high = values.flatten(1).amin(1), values.flatten(1).amax(1)  # (B,)
    sound = (low >= -TOLERANCE) & (high <= 1 + TOLERANCE)
    if values.device.type == "cpu" and not bool(sound.all()):
        remedy = "divide bytes by 255" if name in ("image", "previous_frames") else "scale it"
        raise ValueError(f"{name} values must lie in [0, 1], got {low.min():g} to {high.max():g}; {remedy}")
    return sound


def _finite(name: str, values: Tensor) -> Tensor:
    """Return which rows are finite, [B, ...] -> bool [B]; on a CPU it is an error if one is not."""
    sound = values.flatten(1).isfinite().all(1)
    if values.device.type == "cpu" and not bool(sound.all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity; check the encoder that made it")
    return sound


def _channels(group: ChannelGroup, context: ChannelContext) -> Tensor:
    part = group.compute(context)
    if part.shape != (len(context.image), group.count, *context.grid):
        raise ValueError(
            f"channel group {group.name!r} returned {tuple(part.shape)} for a grid of {context.grid}"
        )
    return part.clamp(0, 1)
