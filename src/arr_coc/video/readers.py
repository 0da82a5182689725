"""Read clips: pictures by Pillow, video files by PyAV (the extra `video`); and write .mp4 files.

reader.index()            FrameIndex: times and size of all frames, before any is decoded
reader.frames((0, 12))    the frames of ascending numbers as RGB images, one at a time
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np
from PIL import Image

from arr_coc.files.atomic import atomic_file
from arr_coc.files.images import ImageSource, check_cost, identify, open_image
from arr_coc.files.paths import local_path, shorten
from arr_coc.files.plugins import install_line
from arr_coc.video.source import (
    MAX_ANIMATION_WORK,
    MAX_TOTAL_FRAMES,
    FrameIndex,
    check_rate,
    check_size,
    check_total,
    check_work,
    even_times,
    mean_rate,
)

if TYPE_CHECKING:
    from torch import Tensor  # at run time a path needs no torch


class ClipReader(Protocol):
    """What every reader of clips can do, one class for each kind of file or pixels (a protocol)."""

    def index(self) -> FrameIndex:
        """Return the times and size of all frames."""
        ...

    def frames(self, numbers: Sequence[int]) -> Iterator[Image.Image]:
        """Yield the frames of these ascending numbers as RGB images."""
        ...


# First bytes of GIF, PNG, WebP (a dot stands for any byte) and JPEG, which Pillow reads.
SIGNATURES = (b"GIF8", b"\x89PNG\r\n\x1a\n", b"RIFF....WEBP", b"\xff\xd8\xff")
# of the frames of a folder
FRAME_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm")
STILL_FORMATS = ("JPEG", "MPO")  # their further pictures are another view, or a map of its light
DEFAULT_FRAME_SECONDS = 0.1  # seconds of a frame of an animation that says 0, as browsers show it


def is_picture(start: bytes) -> bool:
    """Return whether a file that starts with these bytes is one that Pillow reads."""
    head = start[:12].ljust(12, b"\0")
    return any(
        all(want in (b".", head[i : i + 1]) for i, want in enumerate(_single(mark))) for mark in SIGNATURES
    )


def _single(mark: bytes) -> Iterator[bytes]:
    return (mark[i : i + 1] for i in range(len(mark)))


def _opened(path: Path, name: str) -> BinaryIO:
    """Return a file of a clip, opened to be read; a ValueError that names the clip if it can't be."""
    try:
        return path.open("rb")
    except OSError as error:
        raise ValueError(f"{name} cannot be read ({error.strerror}): check its permissions") from error


class Animation:
    """An animation on disk, or a still picture as a clip of one frame."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    def index(self) -> FrameIndex:
        """Return the times and size; every frame is passed over once, none is kept."""
        with self._open() as image:
            total = 1 if image.format in STILL_FORMATS else getattr(image, "n_frames", 1)
            size = image.size
            check_total(self.name, total)
            check_size(self.name, size)
            check_work(self.name, size, 2 * total, MAX_ANIMATION_WORK)
            durations = [self._seek(image, number) for number in range(total)]
            image.seek(0)
            upright = open_image(image).size  # a still may be turned, and a thin one grows
        ends = np.cumsum(np.asarray(durations, dtype=np.float64))
        times = np.concatenate([[0.0], ends[:-1]])
        return FrameIndex(
            self.name, times, total / float(ends[-1]) if total > 1 else mean_rate(times), upright
        )

    def frames(self, numbers: Sequence[int]) -> Iterator[Image.Image]:
        """Yield the frames of ascending numbers, RGB, transparency as by `open_image`."""
        with self._open() as image:
            for number in numbers:
                self._seek(image, number)
                yield open_image(image)

    @contextlib.contextmanager
    def _open(self) -> Generator[Image.Image]:
        with _opened(self.path, self.name) as file, identify(file, self.name) as image:
            check_cost(image, self.name)
            yield image

    def _seek(self, image: Image.Image, number: int) -> float:
        """Move to a frame; return its time in seconds."""
        try:
            image.seek(number)
            image.load()
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"{self.name}: frame {number} cannot be decoded ({reason}): it may be cut off; save it again"
            ) from error
        duration = image.info.get("duration", 0)
        return (
            float(duration) / 1000
            if isinstance(duration, int | float) and duration > 0
            else DEFAULT_FRAME_SECONDS
        )


class PictureClip:
    """Pictures in order, each as `open_image` takes it, opened one by one, at `rate` frames per second."""

    def __init__(self, pictures: Sequence[ImageSource], rate: float, name: str) -> None:
        self.pictures, self.rate, self.name = pictures, check_rate(rate, "rate"), name

    def index(self) -> FrameIndex:
        """Return the times and size; the first picture is opened."""
        total = len(self.pictures)
        check_total(self.name, total)
        size = self._open(0).size
        check_size(self.name, size)
        return FrameIndex(self.name, even_times(total, self.rate), self.rate, size)

    def frames(self, numbers: Sequence[int]) -> Iterator[Image.Image]:
        """Return the pictures of ascending numbers."""
        return (self._open(number) for number in numbers)

    def _open(self, number: int) -> Image.Image:
        try:
            return open_image(self.pictures[number])
        except ValueError as error:
            raise ValueError(f"{self.name}, frame {number}: {error}") from error


def folder_pictures(folder: Path, name: str) -> list[Path]:
    """Return the pictures of a folder in the order of the numbers in their names: `2.png` before `10.png`."""
    try:
        paths = [
            path for path in folder.iterdir() if path.suffix.lower() in FRAME_SUFFIXES and path.is_file()
        ]
    except OSError as error:
        raise ValueError(f"{name} cannot be read ({error.strerror}): check its permissions") from error
    if not paths:
        raise ValueError(
            f"{name} holds no frames ({', '.join(FRAME_SUFFIXES[:4])}, ...): give a folder of images"
        )
    return sorted(paths, key=lambda path: _natural(path.name))


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    # At most 18 digits count as a number: Python refuses to convert thousands of them.
    return tuple((0, int(p), p) if p[0] in "0123456789" and len(p) < 19 else (1, 0, p) for p in parts)


class PixelFrames(Sequence["Tensor | np.ndarray"]):
    """A tensor [T, 3, h, w] or an array [T, h, w, 3] as a sequence of its frames."""

    def __init__(self, values: Any) -> None:
        shape = tuple(int(side) for side in values.shape)
        first, last = len(shape) == 4 and shape[1] in (1, 3), len(shape) == 4 and shape[3] in (1, 3, 4)
        right = first or last if hasattr(values, "is_floating_point") else last
        if not right:
            raise ValueError(
                f"the clip's pixels have the shape {shape}: give a tensor [T, 3, h, w] or an array "
                "[T, h, w, 3]"
            )
        self.values = values

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __getitem__(self, number: Any) -> Any:
        return self.values[number]


# Only these demuxers: a playlist that names other files or addresses is no video.
CONTAINERS = ("mov", "matroska", "webm", "avi", "mpegts", "mpeg", "flv", "ogg", "asf", "ivf", "mxf")
MAX_LOST_SHARE = 0.02  # a file with fewer frames than its header says by more than this share was cut off
MAX_TAIL_SECONDS = 1.0  # that may lack at the end of a stream before it counts as cut off
_REMEDY = "it may be damaged or cut off; download it again, or convert it to H.264 in .mp4"


class VideoFile:
    """A video file on disk.

    Its packets are read once, without decoding, to learn the time of every frame. Decoding for a frame starts
    at the last key frame before it, unless it is already on the way there.
    """

    def __init__(self, path: Path, name: str) -> None:
        try:
            self.av: Any = import_module("av")
        except ImportError as error:
            raise ValueError(f"{name} is a video: install what reads it, {install_line('video')}") from error
        self.path, self.name = path, name
        self.pts: np.ndarray | None = None  # of every frame in the order of showing; None: counted instead
        self.keys = np.empty(0, dtype=np.int64)  # pts of key frames
        self.turn = 0
        self.coded = (0, 0)

    def index(self) -> FrameIndex:
        """Return the times and size of all frames, from the packets and the first decoded frame."""
        with self._stream() as (container, stream):
            declared, average = stream.frames, stream.average_rate
            self.coded = (stream.codec_context.width, stream.codec_context.height)
            check_size(self.name, self.coded)
            pts, keys, counted = self._packets(container, stream)
            base = float(stream.time_base or 0)
        total = counted
        check_total(self.name, total)
        if total < declared - max(1, MAX_LOST_SHARE * declared):
            raise ValueError(f"{self.name} holds {total:,} of {declared:,} frames: {_REMEDY}")
        rate = float(average) if average else 0.0
        if pts is not None and base > 0:
            times = (pts - pts[0]) * base
            real = mean_rate(times)
            # The header's rate is exact where it is true; times in whole milliseconds are not.
            if total > 1 or not 0 < rate <= 1000:
                rate = rate if rate > 0 and abs(rate / real - 1) < 0.01 else real
            self.pts, self.keys = pts, keys
        else:
            if not (math.isfinite(rate) and 0 < rate <= 1000):
                raise ValueError(f"{self.name} says neither times nor a rate: convert it to .mp4")
            times = even_times(total, rate)
        size = next(iter(self.frames((0,)))).size
        return FrameIndex(self.name, times, rate, size)

    def frames(self, numbers: Sequence[int]) -> Iterator[Image.Image]:
        """Yield the frames of ascending numbers, upright, RGB."""
        check_work(self.name, self.coded, self._cost(numbers))
        with self._stream() as (container, stream):
            read = self._by_count if self.pts is None else self._by_time
            for frame in read(container, stream, numbers):
                yield self._picture(frame)

    def _by_time(self, container: Any, stream: Any, numbers: Sequence[int]) -> Iterator[Any]:
        """Yield decoded frames at the pts of `numbers`, from the nearest key frame each."""
        assert self.pts is not None, "the caller looked"
        decoder, last = self._decode(container, stream), None
        tail = MAX_TAIL_SECONDS / float(stream.time_base)
        for number in numbers:
            target = int(self.pts[number])
            key = self._key(target)
            if key is not None and (last is None or last.pts < key) and key > self.pts[0]:
                decoder, last = self._sought(container, stream, key)
            while last is None or last.pts < target:
                frame = next(decoder, None)
                if frame is None:
                    break
                last = frame if frame.pts is not None else last
            if last is None or target - last.pts > tail:
                raise ValueError(
                    f"{self.name} ends before frame {number} ({self._second(number):.2f} s): {_REMEDY}"
                )
            yield last

    def _by_count(self, container: Any, stream: Any, numbers: Sequence[int]) -> Iterator[Any]:
        """Yield decoded frames by their number, where packets carry no times."""
        decoder = self._decode(container, stream)
        at, last = -1, None
        for number in numbers:
            while at < number:
                frame = next(decoder, None)
                if frame is None:
                    if last is None or number - at > MAX_TAIL_SECONDS * float(stream.average_rate):
                        raise ValueError(f"{self.name} ends before frame {number}: {_REMEDY}")
                    break
                at, last = at + 1, frame
            yield last

    def _sought(self, container: Any, stream: Any, key: int) -> tuple[Iterator[Any], Any]:
        """Return a decoder that starts at a key frame, or at the beginning where seeking lands behind it."""
        assert self.pts is not None, "without times there is no seeking"
        for pts in (key, int(self.pts[0])):
            container.seek(pts, stream=stream, backward=True)
            decoder = self._decode(container, stream)
            frame = next(decoder, None)
            if frame is not None and frame.pts is not None and frame.pts <= key:
                return decoder, frame
        return decoder, None

    def _decode(self, container: Any, stream: Any) -> Iterator[Any]:
        try:
            yield from container.decode(stream)
        except self.av.FFmpegError as error:
            raise ValueError(f"{self.name} cannot be decoded ({_reason(error)}): {_REMEDY}") from error

    def _picture(self, frame: Any) -> Image.Image:
        check_size(self.name, (frame.width, frame.height))  # a stream may change its size
        image = frame.to_image()
        turn = int(getattr(frame, "rotation", 0)) % 360  # as a phone that was held upright says it
        if image.size != self.coded:
            image = image.resize(self.coded, Image.Resampling.BILINEAR)
        return open_image(image.rotate(turn, expand=True) if turn % 90 == 0 and turn else image)

    def _packets(self, container: Any, stream: Any) -> tuple[np.ndarray | None, np.ndarray, int]:
        """Sorted pts of all packets (None where one has none), those of key frames, and their number."""
        pts, keys, count, timed = array("q"), array("q"), 0, True
        try:
            for packet in container.demux(stream):
                if packet.size == 0 or packet.is_discard:
                    continue  # the flush at the end, and what an edit list cuts off
                count += 1
                if count > MAX_TOTAL_FRAMES:
                    break  # refused by the caller, whatever their times are
                if packet.pts is None:
                    timed = False
                elif timed:
                    pts.append(packet.pts)
                    if packet.is_keyframe:
                        keys.append(packet.pts)
        except self.av.FFmpegError as error:
            raise ValueError(f"{self.name} cannot be read ({_reason(error)}): {_REMEDY}") from error
        if not timed or not count or count > MAX_TOTAL_FRAMES:
            return None, np.empty(0, dtype=np.int64), count
        times = np.unique(np.frombuffer(pts, dtype=np.int64))
        return times, np.unique(np.frombuffer(keys, dtype=np.int64)) if keys else times[:0], len(times)

    def _key(self, target: int) -> int | None:
        place = int(np.searchsorted(self.keys, target, side="right"))
        return int(self.keys[place - 1]) if place else None

    def _cost(self, numbers: Sequence[int]) -> int:
        """Return how many frames are decoded to reach `numbers`."""
        if self.pts is None:
            return numbers[-1] + 1
        cost, at = 0, -1
        for number in numbers:
            key = self._key(int(self.pts[number]))
            start = 0 if key is None else int(np.searchsorted(self.pts, key))
            cost += number - max(at, start - 1)
            at = number
        return cost

    def _second(self, number: int) -> float:
        assert self.pts is not None, "only where packets have times"
        with self._stream() as (_, stream):
            return float((self.pts[number] - self.pts[0]) * stream.time_base)

    @contextlib.contextmanager
    def _stream(self) -> Generator[tuple[Any, Any]]:
        """The opened file and its first stream of moving pictures; closed at the end."""
        options = {"format_whitelist": ",".join(CONTAINERS), "protocol_whitelist": "none"}
        with _opened(self.path, self.name) as file:
            try:
                container = self.av.open(file, container_options=options)
            except (self.av.FFmpegError, ValueError, OverflowError) as error:
                raise ValueError(
                    f"{self.name} is no video that can be read ({_reason(error)}): {_REMEDY}"
                ) from error
            with container:
                cover = self.av.stream.Disposition.attached_pic
                streams = [s for s in container.streams.video if not s.disposition & cover]
                if not streams:
                    raise ValueError(f"{self.name} has no pictures, only sound or text: give a video")
                if streams[0].codec_context is None:
                    raise ValueError(f"{self.name} has a codec that is not known: convert it to H.264")
                streams[0].thread_type = "AUTO"
                try:
                    yield container, streams[0]
                finally:
                    # PyAV lets go of a decoder with Python's lock held, and a decoder's thread that wants to
                    # log waits for that lock: this waits for the threads without it.
                    streams[0].codec_context.flush_buffers()


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:120]


CODEC = "libx264"
MAX_RATE = 1000.0
MIN_RATE = 1 / 43_200  # two a day: .mp4 has 32 bits for how long two frames last


def write_clip(
    frames: Iterable[ImageSource], path: str | os.PathLike[str], fps: float, quality: int = 18
) -> Path:
    """Write frames as H.264 to an .mp4 file; a file that is there is replaced once all frames are written.

    Colours are stored at half the resolution (4:2:0). An odd width or height grows by one pixel.

    Args:
        frames: Each as `open_image` takes it, all of one size; read one at a time.
        path: Ends in .mp4.
        fps: Frames per second, from 1 / 43200 (two a day) to 1000.
        quality: The constant rate factor, 0 (best) to 51; 18 is hard to tell from the original.

    Raises:
        ValueError: PyAV is missing, there is no frame, frames differ in size, or an argument is out of range.
    """
    target = local_path(os.fspath(path))
    if target.suffix.lower() != ".mp4":
        raise ValueError(f"path {shorten(target)} has another ending: clips are written as .mp4")
    if not MIN_RATE <= check_rate(fps, "fps") <= MAX_RATE:
        raise ValueError(f"fps {fps!r} is out of range: use 1 / 43200 (two a day) to {MAX_RATE:g}")
    if isinstance(quality, bool) or not isinstance(quality, int | float):
        raise ValueError(f"quality {quality!r} is no number: use 0 (best) to 51")
    if not 0 <= quality <= 51:
        raise ValueError(f"quality {quality!r} is out of range: use 0 (best) to 51")
    try:
        av: Any = import_module("av")
    except ImportError as error:
        raise ValueError(f"writing a clip needs PyAV: {install_line('video')}") from error
    try:
        with atomic_file(target) as part, part.open("wb") as file:
            _encode(av, file, frames, _fraction(fps), quality)
    except OSError as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"path {shorten(target)} cannot be written ({reason}): give another") from error
    return target


def _fraction(fps: float) -> Fraction:
    """Return a rate as the fraction that is meant; one below a frame a second is taken by the seconds of a
    frame.
    """
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
