"""Visuals: what a question can be about, an image or a clip, opened from whatever a user has.

    open_visual("page.png") -> PIL image        open_visual("talk.mp4", fps=4.0) -> FrameSource
    open_visuals(["page.png", "talk.mp4"])      several that a question is about together

A path is a clip's if it ends as video files do (`VIDEO_SUFFIXES`); animations (GIF, WebP) are images unless
one opens them by `open_clip`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from PIL import Image

from arr_coc.files.images import open_image
from arr_coc.video import VIDEO_SUFFIXES, FrameSource, open_clip

Visual = Image.Image | FrameSource
"""An opened image or clip."""


def is_clip(source: Any) -> bool:
    """Whether a source is a clip: an opened one, or a path that ends as video files do."""
    if isinstance(source, FrameSource):
        return True
    return (
        isinstance(source, str | os.PathLike)
        and PurePath(os.fsdecode(source)).suffix.lower() in VIDEO_SUFFIXES
    )


def open_visual(source: Any, fps: float | None = None) -> Visual:
    """Open an image or a clip.

    Args:
        source: whatever `open_image` takes, a path of a video, or an opened clip.
        fps: frames per second that are sampled of a video; None: as `open_clip` does by default. It has no
            meaning for what isn't a path of one.

    Raises:
        ValueError: it can't be read, or `fps` is out of range.
    """
    if isinstance(source, FrameSource):
        return source
    if not is_clip(source):
        return open_image(source)
    return open_clip(source) if fps is None else open_clip(source, fps=fps)


def open_visuals(sources: Sequence[Any], fps: float | None = None) -> tuple[Visual, ...]:
    """Open images and clips that a question is about together.

    Args:
        sources: each as `open_visual` takes it.
        fps: frames per second that are sampled of each path of a video.

    Raises:
        ValueError: one can't be read, or there is an `fps` and no path of a video.
    """
    if fps is not None and not any(is_clip(one) and not isinstance(one, FrameSource) for one in sources):
        raise ValueError(
            f"fps {fps!r} is of paths of videos, and there is none: leave it out, or open the clip with "
            "open_clip(..., fps=...)"
        )
    return tuple(open_visual(source, fps) for source in sources)


def first_picture(visual: Visual) -> Image.Image:
    """An image itself, or the first frame of a clip."""
    return visual if isinstance(visual, Image.Image) else next(iter(visual))


def size_text(visual: Visual) -> str:
    """The size of an image or a clip in a few words: "640 x 480 px", "640 x 480 px, 12 frames of 6.0 s"."""
    width, height = visual.size
    text = f"{width} x {height} px"
    if isinstance(visual, Image.Image):
        return text
    return f"{text}, {len(visual)} frames of {visual.total / visual.rate:.1f} s"
