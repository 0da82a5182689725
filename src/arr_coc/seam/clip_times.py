"""The times of a clip's steps, as the processor wrote them into the prompt or beside it.

Qwen3-VL and Qwen3.5 write the middle of each step ahead of it, GLM-4V its start behind it; Qwen2.5-VL says
how long a step lasts. Qwen2-VL says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from arr_coc.seam.question import TIME

if TYPE_CHECKING:
    from arr_coc.seam.base import FamilyAdapter


def step_times(
    family: FamilyAdapter, inputs: Mapping[str, Any], frames: Sequence[int]
) -> tuple[tuple[float, ...] | None, ...]:
    """Per image or clip the seconds at which its steps begin; None of an image, or where they are not told.

    Args:
        family: adapter of the model's family.
        inputs: processor inputs with clips.
        frames: of how many steps each image or clip consists, in order of appearance, 1 for an image.
    """
    steps = [int(grid[0]) for grid in inputs["video_grid_thw"]]
    seconds = inputs.get("second_per_grid_ts")
    if seconds is not None:
        lengths = seconds.tolist() if isinstance(seconds, Tensor) else list(seconds)
        times = [
            tuple(number * length for number in range(count))
            for count, length in zip(steps, lengths, strict=True)
        ]
    else:
        written = _written(family, inputs["input_ids"])
        if len(written) != sum(steps):
            return (None,) * len(frames)
        rest = iter(written)
        times = [_begins(list(islice(rest, count))) for count in steps]
    clips = iter([own for own in times if len(own) > 1])
    return tuple(next(clips, None) if count > 1 else None for count in frames)


def _begins(written: Sequence[float]) -> tuple[float, ...]:
    """When the steps of a clip begin whose middles, or beginnings, are written; ascending as these are.

    The first one begins at 0, or half a step early where it is too late for that: in a part of a clip. All
    others begin as much before what is written, but at most half of the time to their neighbours, for frames
    of a screen that was recorded, or of an animation, are not evenly apart.
    """
    gaps = [after - time for time, after in pairwise(written)]
    first = written[0]
    early = first if not gaps or first <= gaps[0] else gaps[0] / 2
    around = pairwise([*gaps, math.inf])  # of each but the first one
    later = (
        time - min(early, before / 2, after / 2)
        for time, (before, after) in zip(written[1:], around, strict=True)
    )
    return (first - early, *later)


def _written(family: FamilyAdapter, ids: Tensor) -> list[float]:
    """The times that stand in prompts [B, S], in order."""
    tokenizer = getattr(family.processor, "tokenizer", None)
    if tokenizer is None:
        return []
    visual = [family.image_token_id, getattr(family.model.config, "video_token_id", None)]
    drop = torch.tensor([token for token in visual if token is not None], device=ids.device)
    times = []
    for row in ids:
        text = tokenizer.decode(row[~torch.isin(row, drop)], skip_special_tokens=False)
        times += [float(match["middle"] or match["start"]) for match in TIME.finditer(text)]
    return times
