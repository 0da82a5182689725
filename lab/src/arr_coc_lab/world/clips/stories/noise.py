"""A story: every frame has its own grain. No question is about it."""

from __future__ import annotations

import numpy as np
from PIL import Image

from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.stage import Act, Stage, Story, register


def plan(stage: Stage, rect: Rect) -> Act:
    """Gaussian noise of 5 to 14 levels on every pixel, another one in each frame."""
    key, spread = stage.rng.getrandbits(32), stage.rng.uniform(5, 14)

    def paint(image: Image.Image, frame: int) -> Image.Image:
        pixels = np.asarray(image, dtype=np.float32)
        grain = np.random.default_rng((key, frame)).normal(0, spread, pixels.shape[:2])
        noisy = np.clip(pixels + grain[..., None].astype(np.float32), 0, 255)
        return Image.fromarray(noisy.round().astype(np.uint8))

    return Act("noise", paint)


register(Story("noise", "effect", 1, plan))
