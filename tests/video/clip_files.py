"""Small clips whose frames say their own number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (64, 48)


def numbered(count: int, size: tuple[int, int] = SIZE) -> Iterator[np.ndarray]:
    """Frames [h, w, 3] of one colour each: 2 levels of red a frame, then of blue."""
    for number in range(count):
        frame = np.zeros((size[1], size[0], 3), dtype=np.uint8)
        frame[..., 0], frame[..., 2] = number * 2 % 256, number // 128 * 40
        yield frame


def number_of(image: Image.Image) -> int:
    """The number of a frame of `numbered` as it was read back."""
    red, _, blue = np.asarray(image)[image.height // 2, image.width // 2].astype(int)
    return round(red / 2) + 128 * round(blue / 40)


def encode(path: Path, codec: str, count: int = 120, rate: int = 25, **options: str) -> Path:
    """A video file in the container of its ending."""
    import av

    with av.open(str(path), "w") as container:
        quick = {"deadline": "realtime", "cpu-used": "8"} if "vp" in codec else {}
        stream = container.add_stream(codec, rate=rate, options=options | quick)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for number, pixels in enumerate(numbered(count)):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def sound(path: Path) -> Path:
    """A file with sound alone."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44_100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 44_100), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44_100
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def gif(path: Path, durations: list[int], size: tuple[int, int] = (40, 30)) -> Path:
    """An animation whose frames last so many milliseconds."""
    frames = [Image.fromarray(frame) for frame in numbered(len(durations), size)]
    options = {"lossless": True} if path.suffix == ".webp" else {}  # else near frames become one
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0, **options)
    return path
