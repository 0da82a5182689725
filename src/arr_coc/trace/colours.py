"""Colours of numbers in [0, 1], from night over plum and amber to cream.

    colours(relevance)     uint8 [..., 3]

Lightness rises all the way, so a map is readable in gray and with every common kind of colour blindness.
"""

from __future__ import annotations

import numpy as np

STOPS = (
    (8, 8, 20), (58, 20, 92), (140, 36, 104), (214, 66, 82), (250, 136, 72), (254, 206, 120), (255, 250, 226),
)  # fmt: skip
"""RGB at equal steps, between which colours are mixed."""
_STEPS = np.linspace(0, len(STOPS) - 1, 256)
PALETTE: np.ndarray = np.rint(
    np.stack([np.interp(_STEPS, range(len(STOPS)), channel) for channel in zip(*STOPS, strict=True)], axis=1)
).astype(np.uint8)
"""The colours of 0 to 1 in equal steps, RGB, uint8 [256, 3]."""


def colours(numbers: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1] as RGB, float [...] -> uint8 [..., 3]."""
    return PALETTE[(numbers * 256).astype(np.int64).clip(0, 255)]
