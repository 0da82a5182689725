"""Opening what a question is about, an image or a clip, from local files or memory.

    open_clip(path | folder | images | array | tensor, fps=2.0)     FrameSource
    open_visual("page.png")                                         PIL image; a FrameSource of a video's path
    open_visuals(["page.png", "talk.mp4"])                          several that a question is about together

Nothing is fetched, no playlist is followed and no external program is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import Image

from arr_coc.files.images import ImageSource, open_image
from arr_coc.files.paths import local_path, shorten
from arr_coc.files.question import kind_of
from arr_coc.video.readers import (
    Animation,
    ClipReader,
    PictureClip,
    PixelFrames,
    VideoFile,
    folder_pictures,
    is_picture,
)
from arr_coc.video.source import MAX_FRAMES, FrameSource, choose_frames

if TYPE_CHECKING:
    from torch import Tensor  # at run time a path needs no torch

# Common ones first; animations (GIF, WebP) can be images, too.
VIDEO_SUFFIXES = tuple(".mp4 .mkv .webm .avi .mov .m4v .mpg .mpeg .wmv .flv .ts .mts .m2ts .ogv .3gp".split())
# A path of a video, animation or folder; images in order; an array [T, h, w, 3] or a tensor [T, 3, h, w].
ClipSource: TypeAlias = "str | os.PathLike[str] | Sequence[ImageSource] | np.ndarray | Tensor"


def open_clip(
    source: ClipSource,
    fps: float = 2.0,
    most: int = MAX_FRAMES,
    start: float | None = None,
    end: float | None = None,
    rate: float | None = None,
) -> FrameSource:
    """Open a clip and choose its frames; they are decoded when the result is iterated.

    Args:
        source: A path of a video file (needs the extra `video`), of an animation or of a folder of images in
            the order of the numbers in their names; images in order; pixels, uint8 or float in [0, 1].
        fps: Frames per second to sample, by the rule of `sample_frames`.
        most: The most frames.
        start: Seconds from which frames are taken; None for the beginning.
        end: Seconds up to which frames are taken, a frame at `end` included; None for the end.
        rate: Frames per second of a folder, a list or pixels; None means `fps`. Files say it themselves.

    Raises:
        ValueError: a missing, empty, damaged, too large or too long clip, or an argument out of range.
    """
    reader = _reader(source, fps if rate is None else rate, rate is not None)
    index = reader.index()
    numbers, times = choose_frames(index, fps, most, start, end)
    return FrameSource(
        index.name, times, numbers, index.size, index.rate, len(index.times), lambda: reader.frames(numbers)
    )


def _reader(source: Any, rate: float, own_rate: bool) -> ClipReader:
    if isinstance(source, str | os.PathLike):
        path = _local(os.fsdecode(source))
        name = f"clip {shorten(path)}"
        if path.is_dir():
            return PictureClip(folder_pictures(path, name), rate, name)
        if own_rate:
            raise ValueError(f"{name} is a file, which says its own rate: leave out rate {rate:g}")
        start = _start(path, name)
        return Animation(path, name) if is_picture(start) else VideoFile(path, name)
    if isinstance(source, np.ndarray) or hasattr(source, "is_floating_point"):
        return PictureClip(PixelFrames(source), rate, "clip of pixels")
    if isinstance(source, Sequence) and not isinstance(source, bytes | bytearray | memoryview):
        return PictureClip(source, rate, "clip of images")
    raise ValueError(f"the clip is {kind_of(source)}: give a path, a list of images, an array or a tensor")


def _local(text: str) -> Path:
    if re.match(r"(?i)[a-z][a-z0-9+.-]+:(//|.*;base64,)", text):
        raise ValueError(
            f"clip {shorten(text)} is an address and nothing is fetched: download it and give the file's path"
        )
    try:
        path = local_path(text)
    except ValueError as error:
        raise ValueError(f"the clip's {error}") from error
    if not path.exists():
        raise ValueError(f"clip {shorten(text)} does not exist: check the path")
    if not path.is_file() and not path.is_dir():
        raise ValueError(f"clip {shorten(text)} is no regular file: give a file or a folder of images")
    return path


def _start(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise ValueError(f"{name} cannot be read ({error.strerror}): check its permissions") from error
    if not start:
        raise ValueError(f"{name} is empty (0 bytes): save or download it again")
    return start


Visual = Image.Image | FrameSource  # an opened image or clip


def is_clip(source: Any) -> bool:
    """Return whether a source is an opened clip or a path that ends in one of VIDEO_SUFFIXES."""
    if isinstance(source, FrameSource):
        return True
    return (
        isinstance(source, str | os.PathLike)
        and PurePath(os.fsdecode(source)).suffix.lower() in VIDEO_SUFFIXES
    )


def open_visual(source: Any, fps: float | None = None) -> Visual:
    """Open whatever `open_image` takes, a path of a video (at `fps` if given), or an opened clip."""
    if isinstance(source, FrameSource):
        return source
    if not is_clip(source):
        return open_image(source)
    return open_clip(source) if fps is None else open_clip(source, fps=fps)


def open_visuals(sources: Sequence[Any], fps: float | None = None) -> tuple[Visual, ...]:
    """Open images and clips that one question is about; a ValueError for an `fps` without a video's path."""
    if fps is not None and not any(is_clip(one) and not isinstance(one, FrameSource) for one in sources):
        raise ValueError(
            f"fps {fps!r} is of paths of videos, and there is none: leave it out, or open the clip with "
            "open_clip(..., fps=...)"
        )
    return tuple(open_visual(source, fps) for source in sources)


def first_picture(visual: Visual) -> Image.Image:
    """Return an image itself, or the first frame of a clip."""
    return visual if isinstance(visual, Image.Image) else next(iter(visual))


def size_text(visual: Visual) -> str:
    """Return the size of an image or a clip in a few words: "640 x 480 px", "640 x 480 px, 12 frames of 6.0
    s".
    """
    width, height = visual.size
    text = f"{width} x {height} px"
    if isinstance(visual, Image.Image):
        return text
    return f"{text}, {len(visual)} frames of {visual.total / visual.rate:.1f} s"
