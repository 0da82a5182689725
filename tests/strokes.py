"""Pictures of strokes that mean nothing, for tests."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw


def splattered(size: tuple[int, int], strokes: int, seed: int) -> Image.Image:
    """Strokes of any colour and direction, anywhere."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for x, y, a, length, *colour in np.random.default_rng(seed).random((strokes, 7)):
        x, y, a, length = x * size[0], y * size[1], 2 * np.pi * a, 15 + 150 * length
        end = (x + length * np.cos(a), y + length * np.sin(a))
        draw.line([(x, y), end], fill=tuple(int(255 * c) for c in colour), width=4)
    return image
