"""Frames and clips: images in a row that make a clip, and what is known of them as that of the clip.

A call's images are stills and frames of clips, in the order of the prompt. `frames` says how many in a row
belong together: 1 for a still. What is known of a clip's frames lies under one another, [B, T*H, W].
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from arr_coc.choose.allocation import Allocation, Grid
from arr_coc.choose.attending import enough_cells
from arr_coc.choose.layer import Relevance
from arr_coc.video.temporal import Changes, relevance_over_time

T = TypeVar("T")


def frame_counts(changes: Sequence[Changes | None], images: int) -> tuple[int, ...]:
    """How many of the images in a row each image or clip consists of; `changes` as of `decide`."""
    return tuple(1 if one is None else len(one.cuts) for one in changes) or (1,) * images


def groups(values: Sequence[T], frames: Sequence[int]) -> list[Sequence[T]]:
    """Values of images in a row, as those of each image or clip."""
    ends = list(accumulate(frames))
    return [values[end - count : end] for end, count in zip(ends, frames, strict=True)]


def whole_grids(grids: Sequence[Grid], frames: Sequence[int]) -> list[Grid]:
    """The grids (T, H, W) of images and clips, from those (1, H, W) of images and frames.

    Raises:
        ValueError: frames of one clip have other grids.
    """
    spaces = []
    for group in groups(grids, frames):
        if len(set(group)) > 1:
            raise ValueError(f"the frames of a clip have grids {sorted(set(group))}: scale them to one size")
        spaces.append((sum(t for t, _, _ in group), *group[0][1:]))
    return spaces


def kept_of_frames(allocation: Allocation) -> list[Tensor]:
    """The kept cells of each frame of an allocation's grid, long [K_t], rising, numbered in that frame."""
    frames, height, width = allocation.grid
    frame = allocation.keep // (height * width)
    return [allocation.keep[frame == t] - t * height * width for t in range(frames)]


def stacked(maps: Sequence[Relevance], frames: Sequence[int]) -> list[Relevance]:
    """The relevance of images and clips; the maps of a clip's frames lie under one another."""
    return [_under(group) if len(group) > 1 else group[0] for group in groups(maps, frames)]


def _under(group: Sequence[Relevance]) -> Relevance:
    """The relevance of a clip from that of its frames."""
    parts: dict[str, Tensor] = {}
    for name in ("information", "perspectival", "participatory", "balanced", "logits"):
        parts[name] = torch.cat([getattr(one, name) for one in group], dim=1)
    for name in ("weights", "tensions", "explore", "needed"):
        values = [getattr(one, name) for one in group]
        if values[0] is not None:
            parts[name] = torch.stack(values).mean(0)
    if group[0].structured is not None:
        parts["structured"] = torch.stack(
            [one.structured for one in group if one.structured is not None]
        ).any(0)
    return Relevance(**parts)


def over_time(maps: Sequence[Relevance], changes: Sequence[Changes | None]) -> list[Relevance]:
    """The relevance of images, and of clips as it is over time."""
    frames = frame_counts(changes, len(maps))
    visuals = stacked(maps, frames)
    for i, (one, count) in enumerate(zip(changes, frames, strict=bool(changes))):
        if one is None or count == 1:
            continue
        relevance = visuals[i]
        logits = relevance_over_time(relevance.logits[0].unflatten(0, (count, -1)), one)
        flat = logits.flatten(0, 1)[None].to(relevance.logits)
        needed = None if relevance.needed is None else enough_cells(flat)
        structured = relevance.structured
        if structured is not None and not bool(one.new.all()):  # what repeats is not to be kept evenly
            structured = torch.ones_like(structured)
        visuals[i] = relevance._replace(
            logits=flat, balanced=flat.sigmoid(), needed=needed, structured=structured
        )
    return visuals
