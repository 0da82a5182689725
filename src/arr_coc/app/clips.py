"""Clips in the app: uploaded videos, opened within limits, and their preview in the form."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from PIL import Image

from arr_coc.files.images import ImageSource
from arr_coc.video import FrameSource, open_clip
from arr_coc.video.opening import is_clip, size_text

MAX_SECONDS, MAX_MB = 300, 64  # longest clip, largest file
MAX_PIXELS = 30_000_000_000  # frames x width x height as decoded: 8 minutes of 1080p or 2 of 4K at 30 fps
FPS, MAX_FRAMES, LONGEST = 2.0, 64, 960  # frames read per second, most per clip, px of their longer side
THUMBNAILS, THUMBNAIL = 6, 200  # frames in the preview, px of their longer side
LIMITS = f"at most {MAX_SECONDS // 60} minutes, {MAX_MB} MB"


def open_upload(path: str) -> FrameSource:
    """Open an uploaded clip, its frames scaled down to `LONGEST` px.

    Raises:
        ValueError: too long, too large, unreadable, or PyAV is missing.
    """
    file = Path(path)
    size = file.stat().st_size if file.is_file() else 0
    if size > MAX_MB * 2**20:
        raise ValueError(
            f"clip {file.name!r} has {size / 2**20:,.0f} MB, and at most {MAX_MB} are taken: cut it"
        )
    clip = open_clip(path, fps=FPS, most=MAX_FRAMES)
    length = clip.total / clip.rate
    if length > MAX_SECONDS:
        raise ValueError(
            f"clip {file.name!r} is {length:,.0f} s long, and at most {MAX_SECONDS} s are taken: cut it"
        )
    width, height = clip.size
    if clip.total * width * height > MAX_PIXELS:
        raise ValueError(
            f"clip {file.name!r} has {clip.total:,} frames of {width}x{height} px, which take too long to "
            "read: scale it down or cut it"
        )
    return _small(clip)


def open_source(source: ImageSource) -> ImageSource | FrameSource:
    """Return the path of a video opened by `open_upload`; any other source unchanged."""
    return open_upload(source) if isinstance(source, str) and is_clip(source) else source


def preview(clip: FrameSource) -> str:
    """HTML with a few frames of a clip and its size; decodes all frames (ValueError: one is damaged)."""
    last = len(clip) - 1
    count = min(THUMBNAILS, len(clip))
    wanted = {round(i * last / max(1, count - 1)) for i in range(count)}
    pictures = [_picture(frame) for number, frame in enumerate(clip) if number in wanted]
    return f'<div class="clip-frames">{"".join(pictures)}</div><p>{html.escape(size_text(clip))}</p>'


def megapixels(visual: Image.Image | FrameSource) -> float:
    """Megapixels of an image, or of all frames of a clip."""
    width, height = visual.size
    return width * height / 1e6 * (1 if isinstance(visual, Image.Image) else len(visual))


def _small(clip: FrameSource) -> FrameSource:
    """Return the clip with frames of at most `LONGEST` px."""
    share = LONGEST / max(clip.size)
    if share >= 1:
        return clip
    width, height = (max(1, round(side * share)) for side in clip.size)

    def read() -> Iterator[Image.Image]:
        return (frame.resize((width, height), Image.Resampling.BILINEAR) for frame in clip.read())

    return replace(clip, size=(width, height), read=read)


def _picture(frame: Image.Image) -> str:
    small, file = frame.copy(), io.BytesIO()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    small.save(file, "jpeg", quality=80)
    return f'<img src="data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}" alt="">'
