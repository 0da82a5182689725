"""A cache of channels between calls, each kept as long as the inputs that its group depends on stay the same.

    cache = TextureCache()
    generate_texture_array(page, grid, "full20", cache=cache)
    generate_texture_array(page, grid, "full20", attention_history=maps, cache=cache)   one group is computed

A second question about a picture computes what depends on questions; a second frame what depends on frames.
The modes keep one for each picture of a session (`modes.textures`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from arr_coc.choose.texture.registry import ChannelGroup


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
