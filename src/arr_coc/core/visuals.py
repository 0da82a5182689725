"""Visuals: what a question can be about, an image or a clip, opened from whatever a user has.

open_visual("page.png") -> PIL image        open_visual("talk.mp4") -> FrameSource
"""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any

from PIL import Image

from arr_coc.core.images import open_image
from arr_coc.core.video import FrameSource, open_clip

Visual = Image.Image | FrameSource
"""An opened image or clip."""
VIDEO_SUFFIXES = frozenset(
    ".3gp .avi .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ogv .ts .webm .wmv".split()
)
"""Endings of the names of files that are opened as clips; animations (GIF, WebP) are images unless one opens
them by `open_clip`.
"""


def is_clip(source: Any) -> bool:
    """Whether a source is a clip: an opened one, or a path that ends as video files do."""
    if isinstance(source, FrameSource):
        return True
    return (
        isinstance(source, str | os.PathLike)
        and PurePath(os.fsdecode(source)).suffix.lower() in VIDEO_SUFFIXES
    )


def open_visual(source: Any) -> Visual:
    """Open an image, or a clip with its frames sampled as `open_clip` does by default.

    Raises:
        ValueError: it can't be read.
    """
    if isinstance(source, FrameSource):
        return source
    return open_clip(source) if is_clip(source) else open_image(source)


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
