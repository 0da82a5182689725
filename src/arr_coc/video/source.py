"""Sampling: which frames of a clip are read, and the clip as a source of frames.

sample_frames(total=240, rate=24.0, fps=2.0)     20 frame numbers from 0 to 239
step_times((0.0, 0.5, 1.0, 1.5))                 (0.25, 1.25)
FrameSource                                      the frames, read one at a time
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from arr_coc.files.images import grown_size

FPS = 2.0  # frames per second that are sampled of a clip where nobody names another number
MIN_FRAMES = 4  # fewer frames are sampled only of a clip that has fewer
MAX_FRAMES = 768  # the most frames that are sampled unless the caller says otherwise


def sample_frames(total: int, rate: float, fps: float = FPS, most: int = MAX_FRAMES) -> tuple[int, ...]:
    """Return the rising numbers of the frames to read of a clip, by the rule of transformers' Qwen3-VL
    processor.

    `total / rate * fps` frames (rates in frames per second), rounded down, at least 4, at most `most`, which
    wins; spread evenly from the first frame to the last. A ValueError for a rate or count that isn't
    positive.
    """
    if total < 1:
        raise ValueError(f"the clip has {total} frames: give one with at least 1")
    check_rate(rate, "rate")
    check_rate(fps, "fps")
    check_most(most)
    wanted = min(total / rate * fps, float(most))  # before `int`: an absurd rate makes it infinite
    count = min(max(int(wanted), MIN_FRAMES), most, total)
    places = np.linspace(0, total - 1, count).round().astype(np.int64)
    return tuple(int(place) for place in places)


def step_times(times: Sequence[float], frames_per_step: int = 2) -> tuple[float, ...]:
    """Return the seconds of each step of `frames_per_step` frames: the middle between its first and last
    frame.
    """
    if frames_per_step < 1:
        raise ValueError(f"frames_per_step {frames_per_step} is out of range: use at least 1")
    starts = range(0, len(times), frames_per_step)
    return tuple((times[i] + times[min(i + frames_per_step, len(times)) - 1]) / 2 for i in starts)


def check_rate(value: float, name: str) -> float:
    """Return the value as a float; a ValueError unless it is positive and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} {value!r} is not a number of frames per second: use for example 2.0")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} {value!r} is out of range: use frames per second above 0")
    return float(value)


def check_most(most: int) -> None:
    """Raise a ValueError unless `most` is a whole number from 1."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"most {most!r} leaves no frames: use a whole number from 1")


MAX_FRAME_PIXELS = 36_000_000  # 8K (8192 x 4320) fits; a decoder keeps up to twenty frames
MAX_TOTAL_FRAMES = 3_000_000  # of a clip: a day at 30 frames per second has 2.6 million
MAX_WORK = 2_000_000_000_000  # pixels decoded for the sampled frames: ten hours of 1080p at 24 per second
MAX_ANIMATION_WORK = 20_000_000_000  # the same of an animation: three minutes of 1080p, read twice


@dataclass(frozen=True)
class FrameSource:
    """The sampled frames of a clip; iterating reads them from the start, as often as wanted.

    Only the frame that is handed out is in memory.

    Attributes:
        name: The clip's name in messages.
        times: Seconds of each frame, counted from the clip's first frame, ascending.
        numbers: Of the frames in the clip, counted from 0.
        size: Width and height in px; all frames have it.
        rate: Frames per second of the clip itself.
        total: Frames of the clip itself.
    """

    name: str
    times: tuple[float, ...]
    numbers: tuple[int, ...]
    size: tuple[int, int]
    rate: float
    total: int
    # Opens the clip and yields the frames of `numbers` as RGB images.
    read: Callable[[], Iterator[Image.Image]] = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Image.Image]:
        """Yield the frames as RGB images; ValueError if one can't be decoded or isn't of `size`."""
        count = 0
        for image in self.read():
            if image.size != self.size:
                raise ValueError(
                    f"{self.name}: frame {self.numbers[count]} is {image.size[0]}x{image.size[1]} px and the "
                    f"first one {self.size[0]}x{self.size[1]}: scale all frames to one size"
                )
            count += 1
            yield image
        if count != len(self):
            raise ValueError(
                f"{self.name} gave {count} of {len(self)} frames: it may be cut off; write it again"
            )

    def arrays(self) -> Iterator[np.ndarray]:
        """Return the frames as uint8 arrays [height, width, 3], read one at a time."""
        return (np.asarray(image) for image in self)


@dataclass(frozen=True)
class FrameIndex:
    """Times and size of a clip's frames, known before any is decoded."""

    name: str  # for messages
    times: np.ndarray  # seconds of every frame from the first one, ascending
    rate: float  # frames per second, the mean over the clip
    size: tuple[int, int]  # width and height of a frame in px


def even_times(total: int, rate: float) -> np.ndarray:
    """Return the times of `total` frames at a constant rate, in seconds: float64 [total]."""
    return np.arange(total, dtype=np.float64) / rate


def choose_frames(
    index: FrameIndex, fps: float, most: int, start: float | None, end: float | None
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the numbers and times (seconds) of the frames to read, from `start` to `end` seconds inclusive.

    Both count in the whole clip. Where no frame lies between them, it is the nearest one.
    """
    check_rate(fps, "fps")
    check_most(most)
    last = float(index.times[-1])
    low, high = _second(start, "start", 0.0), _second(end, "end", math.inf)
    if high < low:
        raise ValueError(f"end {high:g} s lies before start {low:g} s: exchange them")
    if low > last + 1 / index.rate:
        raise ValueError(f"start {low:g} s lies behind the end of {index.name} ({last:.2f} s): use less")
    slack = 1e-6  # seconds written with a few decimals are meant as the frame they stand for
    first = int(np.searchsorted(index.times, low - slack))
    stop = int(np.searchsorted(index.times, high + slack, side="right"))
    if stop <= first:
        first = min(range(len(index.times)), key=lambda i: abs(float(index.times[i]) - low))
        stop = first + 1
    numbers = tuple(first + i for i in sample_frames(stop - first, index.rate, fps, most))
    return numbers, tuple(float(index.times[i]) for i in numbers)


def _second(value: float | None, name: str, default: float) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"{name} {value!r} is no time in the clip: use seconds from 0")
    return float(value)


def check_size(name: str, size: tuple[int, int]) -> None:
    """Raise a ValueError for a frame without pixels, or with more than `MAX_FRAME_PIXELS` once it has grown.

    Thin and small frames grow to `grown_size` when they are opened.
    """
    width, height = size
    if width < 1 or height < 1:
        raise ValueError(f"{name} has frames of {width}x{height} px: give a clip with at least 1x1 px")
    if max(width * height, math.prod(grown_size(size))) > MAX_FRAME_PIXELS:
        raise ValueError(
            f"{name} has frames of {width}x{height} px, at most {MAX_FRAME_PIXELS // 1_000_000} megapixels "
            "are opened: scale it down"
        )


def check_total(name: str, total: int) -> None:
    """Raise a ValueError for no frames, or more than `MAX_TOTAL_FRAMES`."""
    if total < 1:
        raise ValueError(f"{name} has no frames: give a clip with at least 1")
    if total > MAX_TOTAL_FRAMES:
        raise ValueError(f"{name} has more than {MAX_TOTAL_FRAMES:,} frames: cut out the part you ask about")


def check_work(name: str, size: tuple[int, int], frames: int, most: int | None = None) -> None:
    """Raise a ValueError where `frames` frames have more than `most` px; None: `MAX_WORK`."""
    most = MAX_WORK if most is None else most
    if size[0] * size[1] * frames > most:
        raise ValueError(
            f"{name} needs {frames:,} frames of {size[0]}x{size[1]} px to be decoded, which is more than "
            f"{most:,} px: scale it down or cut it"
        )


def mean_rate(times: Sequence[float] | np.ndarray) -> float:
    """Frames per second of rising times in seconds; the last frame lasts the median of the others."""
    steps = np.diff(np.asarray(times, dtype=np.float64))
    steps = steps[steps > 0]
    if not len(steps):
        return 1.0
    duration = float(times[-1]) - float(times[0]) + float(np.median(steps))
    return len(times) / duration
