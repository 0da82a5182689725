"""Frames encoded at fewer pixels: the result type of the null "fewer pixels"."""

from __future__ import annotations

from dataclasses import dataclass

READABLE = 12.0  # height in px that print needs after shrinking to count as readable


@dataclass(frozen=True)
class CoarseFrames:
    """The size in cells (h, w) at which each of T frames is encoded, (0, 0) for one that is left out.

    ValueError unless there are T sizes, none larger than the clip's own `grid` (T, H, W).
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
        return sum(h * w for h, w in self.sizes)

    def covered(self, step: int) -> bool:
        return self.sizes[step] != (0, 0)

    def scale(self, step: int) -> float:
        """Return the factor by which a frame is shrunk: the smaller one of height and width, at most 1."""
        return min(self.sizes[step][0] / self.grid[1], self.sizes[step][1] / self.grid[2])

    def readable(self, step: int, height: float) -> bool:
        """Return whether print of a height in px of the full size is at least `READABLE` px high in a
        frame.
        """
        scale = self.scale(step)
        # a frame that is not shrunk counts as readable for every method
        return scale >= 1 or (scale > 0 and height * scale >= READABLE)
