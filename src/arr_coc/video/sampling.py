"""Which frames of a clip are read, and the times of the time steps that a model makes of them.

    sample_frames(total=240, rate=24.0, fps=2.0)     -> 20 frame numbers from 0 to 239
    step_times((0.0, 0.5, 1.0, 1.5))                 -> (0.25, 1.25)

The rule is that of the Qwen3-VL video processor of transformers: `total / rate * fps` frames, rounded down,
at least 4, at most `most`, never more than there are; spread evenly from the first frame to the last, each
place rounded to the nearest frame (a tie to the even one). So a clip that was sampled here and is given to
that processor with its sampling off is the clip it would have sampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

FPS = 2.0
"""Frames per second that are sampled of a clip where nobody names another number."""
LEAST_FRAMES = 4
"""Fewer frames are sampled only of a clip that has fewer."""
MOST_FRAMES = 768
"""The most frames that are sampled unless the caller says otherwise."""


def sample_frames(total: int, rate: float, fps: float = FPS, most: int = MOST_FRAMES) -> tuple[int, ...]:
    """The numbers of the frames to read of a clip.

    Args:
        total: frames of the clip, at least 1.
        rate: frames per second of the clip.
        fps: frames per second to sample.
        most: the most frames; at least 1, and where it is under 4 it wins over the least count.

    Returns:
        Ascending numbers from 0 to total - 1, each at most once.

    Raises:
        ValueError: no frame, or a rate or count that is not a positive number.
    """
    if total < 1:
        raise ValueError(f"the clip has {total} frames: give one with at least 1")
    check_rate(rate, "rate")
    check_rate(fps, "fps")
    check_most(most)
    wanted = min(total / rate * fps, float(most))  # before `int`: an absurd rate makes it infinite
    count = min(max(int(wanted), LEAST_FRAMES), most, total)
    places = np.linspace(0, total - 1, count).round().astype(np.int64)
    return tuple(int(place) for place in places)


def step_times(times: Sequence[float], frames_per_step: int = 2) -> tuple[float, ...]:
    """The time of each time step of a model: the middle between its first and its last frame, in seconds.

    Args:
        times: of the sampled frames, in seconds; a last step that lacks frames repeats the last one.
        frames_per_step: frames that a model merges into one time step (Qwen's temporal patch: 2).
    """
    if frames_per_step < 1:
        raise ValueError(f"frames_per_step {frames_per_step} is out of range: use at least 1")
    starts = range(0, len(times), frames_per_step)
    return tuple((times[i] + times[min(i + frames_per_step, len(times)) - 1]) / 2 for i in starts)


def check_rate(value: float, name: str) -> float:
    """The value, or ValueError where it is no positive finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} {value!r} is not a number of frames per second: use for example 2.0")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} {value!r} is out of range: use frames per second above 0")
    return float(value)


def check_most(most: int) -> None:
    """ValueError where `most` is no whole number from 1."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"most {most!r} leaves no frames: use a whole number from 1")
