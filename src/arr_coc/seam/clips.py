"""Clips: processor inputs with videos, written as inputs in which each frame is an image.

A Qwen tower attends within frames, and each frame of a clip stands in the prompt by itself: encoded alone it
is what it is in the clip, to the last bit. So a clip is as many images at the positions of its frames, and
whoever drops tokens of images drops those of clips. A frame is one step of the temporal grid, two pictures of
the clip; the language model reads one token for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from arr_coc.seam.compaction import consecutive_positions
from arr_coc.seam.features import IMAGE, VIDEO
from arr_coc.seam.steps import Step, StepPixels, StepRows

if TYPE_CHECKING:
    from arr_coc.seam.base import FamilyAdapter

NAMES = ("pixel_values_videos", "video_grid_thw", "second_per_grid_ts", "video_metadata")
"""What a processor says of clips."""


def as_frames(family: FamilyAdapter, inputs: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[int, ...]]:
    """Processor inputs in which every frame of a clip is an image, with the positions that it has.

    What reads the result needs to know nothing of clips: frames stand where they stood, as images do.

    Args:
        family: adapter of the model's family.
        inputs: processor inputs with images, clips or both.

    Returns:
        The inputs, the caller's own if there is no clip; and, in order of appearance, of how many images each
        image or clip consists, 1 for an image; () if there is no clip. Where the clips are `StepPixels`,
        `pixel_values` is `StepRows`.

    Raises:
        ValueError: there are clips, and the family doesn't encode them frame by frame; or the prompt holds
            other numbers of visual tokens than its images and clips have.
    """
    if inputs.get("pixel_values_videos") is None:
        return inputs, ()
    if not family.clips:
        raise ValueError(
            "pixel_values_videos can't be used while tokens are dropped: clips of "
            f"{family.model.config.model_type} are not encoded frame by frame; use mode='full'"
        )
    config, ids = family.model.config, inputs["input_ids"]
    kinds = family.token_kinds(inputs)
    merge = config.vision_config.spatial_merge_size
    sources = {
        IMAGE: _Visuals(inputs.get("pixel_values"), inputs.get("image_grid_thw"), merge),
        VIDEO: _Visuals(inputs["pixel_values_videos"], inputs["video_grid_thw"], merge),
    }
    pixels: list[Tensor | Step] = []
    grids, frames = [], []
    for row in kinds:
        order = row[row > 0]
        while len(order):
            kind = int(order[0])
            patches, (t, h, w), tokens = sources[kind].take()
            # The placeholders of one clip follow each other with nothing but text between them.
            if not bool((order[:tokens] == kind).all()) or len(order) < tokens:
                raise _mismatch(kinds, sources)
            order = order[tokens:]
            pixels += patches
            grids += [(1, h, w)] * t
            frames.append(t)
    if any(source.left for source in sources.values()):
        raise _mismatch(kinds, sources)
    mask = family.attention_mask(inputs)
    positions = torch.cat([consecutive_positions(mask)[None], family.positions(inputs).long()])
    like = inputs["video_grid_thw"]
    kept = {name: value for name, value in inputs.items() if name not in NAMES}
    return kept | {
        "input_ids": ids.masked_fill(kinds == VIDEO, config.image_token_id),
        "mm_token_type_ids": (kinds > 0).to(torch.int) * IMAGE,
        "position_ids": positions,
        "pixel_values": _joined(pixels, ids.device),
        "image_grid_thw": torch.tensor(grids, dtype=like.dtype, device=like.device),
    }, tuple(frames)


def _joined(parts: Sequence[Tensor | Step], device: torch.device) -> Tensor | StepRows:
    """The rows of images and clips one below another; those of steps are made when they are read."""
    rows = [part for part in parts if isinstance(part, Tensor)]
    return torch.cat(rows) if len(rows) == len(parts) else StepRows(parts, device)


class _Visuals:
    """Images or clips in order: their patches, taken one visual at a time."""

    def __init__(self, pixels: Tensor | StepPixels | None, grids: Tensor | None, merge: int) -> None:
        self.sizes = [] if grids is None else [tuple(grid) for grid in grids.tolist()]
        self.left = list(self.sizes)
        self.merge = merge
        counts = [t * h * w for t, h, w in self.sizes]
        self.parts: list[list[Tensor] | list[Step]] = []
        if isinstance(pixels, StepPixels):
            self.parts = [[Step(clip, step) for step in range(len(clip))] for clip in pixels.clips]
        elif pixels is not None:
            self.parts = [[part] for part in pixels.split(counts)]

    def take(self) -> tuple[list[Tensor] | list[Step], tuple[int, int, int], int]:
        """The next one: its patches, its grid of patches and how many visual tokens it has.

        Raises:
            ValueError: there is none.
        """
        if not self.left or not self.parts:
            raise ValueError(
                f"the prompt has more visual tokens than its {len(self.sizes)} images or clips make; pass "
                "the processor's own input_ids with the same images and clips"
            )
        t, h, w = self.left.pop(0)
        return self.parts.pop(0), (t, h, w), t * h * w // self.merge**2


def _mismatch(kinds: Tensor, sources: Mapping[int, _Visuals]) -> ValueError:
    """The error of a prompt that doesn't match its images and clips."""
    counts = [int((kinds == kind).sum()) for kind in (IMAGE, VIDEO)]
    grids = [source.sizes for source in sources.values()]
    return ValueError(
        f"the prompt has {counts[0]} image tokens and {counts[1]} video tokens, but its images and clips "
        f"have grids {grids[0]} and {grids[1]}; pass the processor's own input_ids, not truncated"
    )
