"""Write frames to an .mp4 file, one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from arr_coc.files.atomic import whole_file
from arr_coc.files.extras import install_line
from arr_coc.files.images import ImageSource, open_image
from arr_coc.files.paths import local_path, shorten
from arr_coc.video.sampling import check_rate
from arr_coc.video.source import check_size

CODEC = "libx264"
LARGEST_RATE = 1000.0
SMALLEST_RATE = 1 / 43_200
"""Two frames a day: an .mp4 file has 32 bits for how long two frames last, in fractions of a second."""


def write_clip(
    frames: Iterable[ImageSource], path: str | os.PathLike[str], fps: float, quality: int = 18
) -> Path:
    """Write frames as H.264 to an .mp4 file; a file that is there is replaced once all frames are written.

    Colours are stored at half the resolution (4:2:0), so a frame that is read back is near the one that was
    written but not equal. An odd width or height grows by one pixel, which repeats the edge.

    Args:
        frames: each as `open_image` takes it, all of one size; read one at a time.
        path: ends in .mp4.
        fps: frames per second, from 1 / 43200 (two a day) to 1000.
        quality: the constant rate factor, 0 (best) to 51; 18 is hard to tell from the original.

    Returns:
        The path.

    Raises:
        ValueError: PyAV is missing, there is no frame, frames differ in size, or an argument is out of range.
    """
    target = local_path(os.fspath(path))
    if target.suffix.lower() != ".mp4":
        raise ValueError(f"path {shorten(target)} has another ending: clips are written as .mp4")
    if not SMALLEST_RATE <= check_rate(fps, "fps") <= LARGEST_RATE:
        raise ValueError(f"fps {fps!r} is out of range: use 1 / 43200 (two a day) to {LARGEST_RATE:g}")
    if isinstance(quality, bool) or not isinstance(quality, int | float):
        raise ValueError(f"quality {quality!r} is no number: use 0 (best) to 51")
    if not 0 <= quality <= 51:
        raise ValueError(f"quality {quality!r} is out of range: use 0 (best) to 51")
    try:
        av: Any = import_module("av")
    except ImportError as error:
        raise ValueError(f"writing a clip needs PyAV: {install_line('video')}") from error
    try:
        with whole_file(target) as part, part.open("wb") as file:
            _encode(av, file, frames, _fraction(fps), quality)
    except OSError as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"path {shorten(target)} cannot be written ({reason}): give another") from error
    return target


def _fraction(fps: float) -> Fraction:
    """A rate as the fraction that is meant; one below a frame a second is taken by the seconds of a frame."""
    if fps < 1:
        return 1 / Fraction(1 / fps).limit_denominator(1001)
    return Fraction(fps).limit_denominator(1001)


def _encode(av: Any, file: Any, frames: Iterable[ImageSource], rate: Fraction, quality: int) -> None:
    stream: Any = None
    size = (0, 0)
    with av.open(file, "w", format="mp4") as container:
        for number, source in enumerate(frames):
            image = open_image(source)
            if stream is None:
                size = image.size
                check_size("the clip", size)
                stream = container.add_stream(CODEC, rate=rate)
                stream.width, stream.height = size[0] + size[0] % 2, size[1] + size[1] % 2
                stream.pix_fmt, stream.options = "yuv420p", {"crf": str(quality)}
            if image.size != size:
                raise ValueError(
                    f"frame {number} is {image.size[0]}x{image.size[1]} px and the first one "
                    f"{size[0]}x{size[1]}: scale all frames to one size"
                )
            pixels = np.pad(np.asarray(image), ((0, size[1] % 2), (0, size[0] % 2), (0, 0)), mode="edge")
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = number, 1 / rate
            container.mux(stream.encode(frame))
        if stream is None:
            raise ValueError("the clip has no frames: give at least 1")
        container.mux(stream.encode())
