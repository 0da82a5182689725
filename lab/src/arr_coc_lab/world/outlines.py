"""The outlines of all shapes but circles and rings."""

from __future__ import annotations

import math


def outline(shape: str, x: float, y: float, r: float, turn: float) -> list[tuple[float, float]]:
    """Corner points (px) of a shape of radius `r` px around (x, y), turned by `turn` radians."""

    def ring(angles: list[float], radii: list[float]) -> list[tuple[float, float]]:
        return [
            (x + q * math.sin(a + turn), y - q * math.cos(a + turn))
            for a, q in zip(angles, radii, strict=True)
        ]

    def even(n: int, first: float = 0.0) -> list[float]:
        return [first + 2 * math.pi * i / n for i in range(n)]

    if shape == "square":
        return ring(even(4, math.pi / 4), [1.15 * r] * 4)
    if shape == "diamond":
        return ring(even(4), [r, 0.68 * r, r, 0.68 * r])
    if shape == "triangle":
        return ring(even(3), [1.05 * r] * 3)
    if shape == "star":
        return ring(even(10), [r if i % 2 == 0 else 0.42 * r for i in range(10)])
    if shape == "cross":
        arm, base = 0.33 * r, r
        half = [(-arm, -base), (arm, -base), (arm, -arm), (base, -arm), (base, arm), (arm, arm)]
        corner = half + [(-u, -v) for u, v in half]
        c, s = math.cos(turn), math.sin(turn)
        return [(x + u * c - v * s, y + u * s + v * c) for u, v in corner]
    if shape == "heart":
        steps = [2 * math.pi * i / 40 for i in range(40)]
        high = [13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t) for t in steps]
        return [(x + r * math.sin(t) ** 3, y - r * h / 16) for t, h in zip(steps, high, strict=True)]
    raise ValueError(f"no outline for shape {shape!r}")
