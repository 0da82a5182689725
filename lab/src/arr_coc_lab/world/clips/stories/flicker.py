"""A story: the brightness of the picture goes up and down. No question is about it."""

from __future__ import annotations

import numpy as np
from PIL import Image

from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.stage import Act, Stage, Story, register

DARKEST = 0.75
"""Least share of the brightness: an orange thing must not look brown for long."""


def plan(stage: Stage, rect: Rect) -> Act:
    """Return every frame at its own brightness: 0.75 to 1 of the picture's, at random or in waves."""
    rng = stage.rng
    key, period, waves = rng.getrandbits(32), rng.uniform(3, 12), rng.random() < 0.5

    def level(frame: int) -> float:
        if waves:
            share = 0.5 + 0.5 * float(np.cos(2 * np.pi * frame / period))
        else:
            share = float(np.random.default_rng((key, frame)).random())
        return DARKEST + (1 - DARKEST) * share

    def paint(image: Image.Image, frame: int) -> Image.Image:
        table = [round(value * level(frame)) for value in range(256)]
        return image.point(table * 3)

    return Act("flicker", paint)


register(Story("flicker", "effect", 2, plan))
