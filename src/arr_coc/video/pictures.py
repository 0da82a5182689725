"""Clips made of pictures: animations (GIF, PNG, WebP), folders, lists, arrays and tensors."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from arr_coc.files.images import ImageSource, check_cost, identify, open_image
from arr_coc.files.paths import shorten
from arr_coc.video.source import (
    MAX_ANIMATION_WORK,
    Index,
    check_rate,
    check_size,
    check_total,
    check_work,
    even_times,
    mean_rate,
)

if TYPE_CHECKING:
    from torch import Tensor

SIGNATURES = (b"GIF8", b"\x89PNG\r\n\x1a\n", b"RIFF....WEBP", b"\xff\xd8\xff")
"""How files begin that Pillow reads: GIF, PNG, WebP (a dot stands for any byte) and JPEG."""
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm")
"""The endings of the frames of a folder."""
STILLS = ("JPEG", "MPO")
"""Formats that don't move: further pictures in such a file are another eye's view, or a map of its light."""
UNSAID = 0.1
"""Seconds of a frame of an animation that says 0, as browsers show it."""


def is_picture(start: bytes) -> bool:
    """Whether a file that starts with these bytes is one that Pillow reads."""
    head = start[:12].ljust(12, b"\0")
    return any(
        all(want in (b".", head[i : i + 1]) for i, want in enumerate(_single(mark))) for mark in SIGNATURES
    )


def _single(mark: bytes) -> Iterator[bytes]:
    return (mark[i : i + 1] for i in range(len(mark)))


class Animation:
    """An animation on disk, or a still picture as a clip of one frame."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    def index(self) -> Index:
        """Times and size; every frame is passed over once, none is kept.

        Raises:
            ValueError: a damaged, too large or too long animation.
        """
        with self._open() as image:
            total = 1 if image.format in STILLS else getattr(image, "n_frames", 1)
            size = image.size
            check_total(self.name, total)
            check_size(self.name, size)
            check_work(self.name, size, 2 * total, MAX_ANIMATION_WORK)
            durations = [self._seek(image, number) for number in range(total)]
            image.seek(0)
            upright = open_image(image).size  # a still may be turned, and a thin one grows
        ends = np.cumsum(np.asarray(durations, dtype=np.float64))
        times = np.concatenate([[0.0], ends[:-1]])
        return Index(self.name, times, total / float(ends[-1]) if total > 1 else mean_rate(times), upright)

    def frames(self, numbers: Sequence[int]) -> Iterator[Image.Image]:
        """The frames of ascending numbers, RGB, transparency on white."""
        with self._open() as image:
            for number in numbers:
                self._seek(image, number)
                yield open_image(image)

    @contextmanager
    def _open(self) -> Generator[Image.Image]:
        """The opened file, nothing of it decoded."""
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise ValueError(
                f"{self.name} cannot be read ({error.strerror}): check its permissions"
            ) from error
        with file, identify(file, self.name) as image:
            check_cost(image, self.name)
            yield image

    def _seek(self, image: Image.Image, number: int) -> float:
        """Move to a frame; its seconds."""
        try:
            image.seek(number)
            image.load()
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"{self.name}: frame {number} cannot be decoded ({reason}): it may be cut off; save it again"
            ) from error
        duration = image.info.get("duration", 0)
        return float(duration) / 1000 if isinstance(duration, int | float) and duration > 0 else UNSAID


class Pictures:
    """Pictures in order: paths, opened images, arrays or tensors, opened one by one.

    Args:
        pictures: each as `open_image` takes it.
        rate: frames per second.
        name: for messages.
    """

    def __init__(self, pictures: Sequence[ImageSource], rate: float, name: str) -> None:
        self.pictures, self.rate, self.name = pictures, check_rate(rate, "rate"), name

    def index(self) -> Index:
        """Times and size; the first picture is opened."""
        total = len(self.pictures)
        check_total(self.name, total)
        size = self._open(0).size
        check_size(self.name, size)
        return Index(self.name, even_times(total, self.rate), self.rate, size)

    def frames(self, numbers: Sequence[int]) -> Iterator[Image.Image]:
        """The pictures of ascending numbers."""
        return (self._open(number) for number in numbers)

    def _open(self, number: int) -> Image.Image:
        try:
            return open_image(self.pictures[number])
        except ValueError as error:
            raise ValueError(f"{self.name}, frame {number}: {error}") from error


def folder_pictures(folder: Path, name: str) -> list[Path]:
    """The pictures of a folder in the order of the numbers in their names: `2.png` before `10.png`.

    Raises:
        ValueError: there is none, or the folder can't be read.
    """
    try:
        paths = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file()]
    except OSError as error:
        raise ValueError(f"{name} cannot be read ({error.strerror}): check its permissions") from error
    if not paths:
        raise ValueError(f"{name} holds no frames ({', '.join(SUFFIXES[:4])}, ...): give a folder of images")
    return sorted(paths, key=lambda path: _natural(path.name))


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    # At most 18 digits count as a number: Python refuses to convert thousands of them.
    return tuple((0, int(p), p) if p[0] in "0123456789" and len(p) < 19 else (1, 0, p) for p in parts)


class Frames(Sequence["Tensor | np.ndarray"]):
    """A tensor [T, 3, h, w] or an array [T, h, w, 3] as a sequence of its frames.

    Raises:
        ValueError: another shape.
    """

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


def clip_name(path: Path) -> str:
    """A clip's name in messages."""
    return f"clip {shorten(path)}"
