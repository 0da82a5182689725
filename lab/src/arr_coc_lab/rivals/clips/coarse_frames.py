"""Frames encoded at fewer pixels: the result type of the null "fewer pixels".

frames = CoarseFrames((8, 16, 16), ((4, 4),) * 8)
frames.tokens, frames.readable(0, height=40.0)      128, False: print of 40 px is 10 px high at a quarter
"""

from __future__ import annotations

from dataclasses import dataclass

READABLE = 12.0  # height in px that print needs after shrinking to count as readable


@dataclass(frozen=True)
class CoarseFrames:
    """The size in cells (h, w) at which each of T frames is encoded, (0, 0) for one that is left out.

    Raises:
        ValueError: not T sizes, or one that is larger than the clip's own `grid` (T, H, W).
    """

    grid: tuple[int, int, int]
    sizes: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        t, height, width = self.grid
        if len(self.sizes) != t:
            raise ValueError(f"{len(self.sizes)} sizes for {t} frames: give one for each")
        for h, w in self.sizes:
            if not (h == w == 0 or (1 <= h <= height and 1 <= w <= width)):
                raise ValueError(f"a frame of {height}x{width} cells can't be encoded as {h}x{w}: use less")

    @property
    def tokens(self) -> int:
        """Visual tokens of all frames together."""
        return sum(h * w for h, w in self.sizes)

    def covered(self, step: int) -> bool:
        """Whether a frame is encoded at all."""
        return self.sizes[step] != (0, 0)

    def scale(self, step: int) -> float:
        """The factor by which a frame is shrunk: the smaller one of height and width, at most 1."""
        return min(self.sizes[step][0] / self.grid[1], self.sizes[step][1] / self.grid[2])

    def readable(self, step: int, height: float) -> bool:
        """Whether print of a height in px of the full size is at least `READABLE` px high in a frame.

        A frame that is not shrunk counts as readable, as its kept cells do for every method.
        """
        scale = self.scale(step)
        return scale >= 1 or (scale > 0 and height * scale >= READABLE)
