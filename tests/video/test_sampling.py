"""Sampling of frames: the rule of transformers' processor, exactly."""

from __future__ import annotations

import pytest

from arr_coc.video import sample_frames, step_times


def test_it_is_the_rule_of_the_processor() -> None:
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
    from transformers.video_utils import VideoMetadata

    processor = Qwen3VLVideoProcessor()
    for total in (1, 2, 3, 4, 5, 7, 30, 61, 240, 999, 20_000):
        for rate in (1.0, 7.5, 23.976, 30.0, 60.0):
            for fps in (0.5, 1, 2.0, 8.0):
                theirs = processor.sample_frames(VideoMetadata(total_num_frames=total, fps=rate), fps=fps)
                assert sample_frames(total, rate, fps) == tuple(theirs.tolist())


def test_first_and_last_frame_are_there() -> None:
    numbers = sample_frames(1000, 25.0, 2.0)
    assert numbers[0] == 0
    assert numbers[-1] == 999
    assert len(numbers) == 80
    assert len(sample_frames(10**6, 25.0, most=16)) == 16
    assert sample_frames(1, 1e-300) == (0,)
    assert len(sample_frames(100, 1e-300, 1e300)) == 100
    assert sample_frames(9, 30.0, most=2) == (0, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 30.0), "0 frames"),
        ((5, 0.0), "rate 0.0"),
        ((5, float("nan")), "rate nan"),
        ((5, 30.0, -1.0), "fps -1.0"),
        ((5, 30.0, float("inf")), "fps inf"),
        ((5, 30.0, True), "fps True"),
        ((5, 30.0, 2.0, 0), "most 0"),
    ],
)
def test_refusals(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_frames(*arguments)


def test_times_of_steps() -> None:
    assert step_times((0.0, 0.5, 1.0, 1.5)) == (0.25, 1.25)
    assert step_times((0.0, 0.5, 1.0)) == (0.25, 1.0)
    assert step_times((3.0,)) == (3.0,)
    assert step_times((1.0, 2.0), frames_per_step=1) == (1.0, 2.0)
    with pytest.raises(ValueError, match="frames_per_step 0"):
        step_times((1.0,), 0)
