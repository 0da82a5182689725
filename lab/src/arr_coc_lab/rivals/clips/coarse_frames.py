"""Frames that are encoded smaller than they are: the record of the null "more frames at fewer pixels".

    frames = CoarseFrames((8, 16, 16), ((4, 4),) * 8)
    frames.tokens, frames.readable(0, height=40.0)      128, False: print of 40 px is 10 px high at a quarter

A coarse token covers a block of the clip's own cells. Covered is all of a frame that is there at all, however
small: shrinking loses no place. Readable is what could be read there, by one rule for print.
"""

from __future__ import annotations

from dataclasses import dataclass

READABLE = 12.0
"""Height in px that print needs to have after shrinking, to count as readable."""


@dataclass(frozen=True)
class CoarseFrames:
    """The size at which each frame of a clip is encoded.

    Attributes:
        grid: (T, H, W) cells of the clip's own grid.
        sizes: (h, w) cells of each of the T frames; (0, 0) of a frame that is left out.

    Raises:
        ValueError: not T sizes, or one that is larger than the clip's own.
    """

    grid: tuple[int, int, int]
    sizes: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        """Check that the sizes are those of the clip's frames."""
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
        """Whether a frame is there at all."""
        return self.sizes[step] != (0, 0)

    def scale(self, step: int) -> float:
        """The factor by which a frame is shrunk: the smaller one of height and width, at most 1."""
        return min(self.sizes[step][0] / self.grid[1], self.sizes[step][1] / self.grid[2])

    def readable(self, step: int, height: float) -> bool:
        """Whether print of a height in px of the full size can be read in a frame.

        That is `READABLE` px after shrinking. What is not shrunk is as readable as it is for any method that
        keeps cells: it counts, whatever its height.
        """
        scale = self.scale(step)
        return scale >= 1 or (scale > 0 and height * scale >= READABLE)
