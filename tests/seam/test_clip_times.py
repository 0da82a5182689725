"""The times of steps, as processors tell them."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_families
from arr_coc import ARRCOCModel
from arr_coc.seam.base import as_frames
from arr_coc.seam.clips import clip_step_times
from arr_coc.video import open_clip
from arr_coc.video.temporal import Moment
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
    (times,) = clip_step_times(model.adapter, inputs, frames)
    if family == "qwen2_vl":
        assert times is None
    else:
        assert times == pytest.approx((0.0, 1.0, 2.0, 3.0), abs=0.06)


def steps_of(visual: Any) -> tuple[float, ...]:
    model, session = inputs_of("qwen3_vl", visual)
    inputs = session.inputs(QUESTION)
    (times,) = clip_step_times(model.adapter, inputs, as_frames(model.adapter, inputs)[1])
    return times


def test_a_part_of_a_clip_has_the_seconds_of_the_whole() -> None:
    frames = [picture(seed, (48, 48)) for seed in range(40)]
    part = open_clip(frames, fps=2.0, rate=2.0, start=10.0, end=13.5)
    assert steps_of(part) == pytest.approx((10.0, 11.0, 12.0, 13.0), abs=0.35)
    moment = Moment(-2.0, 0.0).worth(steps_of(part), 4)  # its last two seconds
    assert moment is not None
    assert moment.argmax() == 2


def test_steps_that_are_not_evenly_apart_ascend(tmp_path: Path) -> None:
    times = [0.0, 10.0, 10.5, 10.6, 10.7, 10.8, 40.0, 41.0]
    first, *rest = [picture(seed, (48, 48)) for seed in range(len(times))]
    durations = [round(1000 * (after - time)) for time, after in pairwise([*times, 42.0])]
    first.save(tmp_path / "screen.gif", save_all=True, append_images=rest, duration=durations)
    begins = steps_of(open_clip(tmp_path / "screen.gif", fps=2.0))
    assert list(begins) == sorted(begins)
    assert begins[:3] == pytest.approx((0.0, 10.5, 10.7), abs=0.15)
    assert 11 < begins[3] < 40.5


def test_images_have_none_and_clips_their_own() -> None:
    model, session = inputs_of("qwen3_vl", [picture(9, (48, 48)), clip(4), clip(6)])
    inputs = session.inputs(QUESTION)
    _, frames = as_frames(model.adapter, inputs)
    assert frames == (1, 2, 3)
    times = clip_step_times(model.adapter, inputs, frames)
    assert times[0] is None
    assert [len(own or ()) for own in times] == [0, 2, 3]


@pytest.mark.slow
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
