"""The times of steps, as processors tell them. Run: pytest tests/seam/test_clip_times.py"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import tiny_families
from arr_coc import ARRCOCModel
from arr_coc.core.video import open_clip
from arr_coc.seam.clip_times import step_times
from arr_coc.seam.clips import as_frames
from tiny import QWEN_FAMILIES, picture, tiny

QUESTION = "What is shown at 2 seconds?"


def inputs_of(family: str, visuals: Any) -> tuple[ARRCOCModel, Any]:
    built = tiny(family)
    processor = copy.copy(built.processor)
    processor.chat_template = tiny_families.QWEN  # which also writes clips
    processor.video_processor = copy.copy(processor.video_processor)
    processor.video_processor.patch_size, processor.video_processor.merge_size = 4, 2
    processor.video_processor.temporal_patch_size, processor.video_processor.do_resize = 2, False
    model = ARRCOCModel.wrap(built.model, processor, budget=20, strict=True)
    return model, model.session(visuals)


def clip(frames: int = 8) -> Any:
    """Two frames a second, one step a second."""
    return open_clip([picture(seed, (48, 48)) for seed in range(frames)], fps=2.0)


@pytest.mark.parametrize("family", QWEN_FAMILIES)
def test_times_begin_with_the_steps(family: str) -> None:
    model, session = inputs_of(family, clip())
    inputs = session.inputs(QUESTION)
    _, frames = as_frames(model.adapter, inputs)
    (times,) = step_times(model.adapter, inputs, frames)
    if family == "qwen2_vl":
        assert times is None
    else:
        assert times == pytest.approx((0.0, 1.0, 2.0, 3.0), abs=0.06)


def test_images_have_none_and_clips_their_own() -> None:
    model, session = inputs_of("qwen3_vl", [picture(9, (48, 48)), clip(4), clip(6)])
    inputs = session.inputs(QUESTION)
    _, frames = as_frames(model.adapter, inputs)
    assert frames == (1, 2, 3)
    times = step_times(model.adapter, inputs, frames)
    assert times[0] is None
    assert [len(own or ()) for own in times] == [0, 2, 3]


@torch.no_grad()
@pytest.mark.parametrize("mode", ["prune", "sparse"])
def test_a_named_moment_has_most_of_what_is_kept(mode: str) -> None:
    _, session = inputs_of("qwen3_vl", clip())

    def kept(question: str) -> list[int]:
        allocation = session.ask(question, mode=mode, max_new_tokens=1).allocation
        return allocation.mask().flatten(1).sum(1).tolist()

    assert max(range(4), key=kept(QUESTION).__getitem__) == 2
    assert max(range(4), key=kept("What is shown in the end?").__getitem__) == 3
    assert max(range(4), key=kept("What is shown at the start?").__getitem__) == 0
