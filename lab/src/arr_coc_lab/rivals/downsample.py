"""Downsampling, the null of fewer pixels: the image shrunk until it has at most `count` cells.

smaller_grid((32, 32), 273) -> (16, 17)
"""

from __future__ import annotations

import math

from arr_coc_lab.results.kinds import DOWNSAMPLE
from arr_coc_lab.rivals.method import Method, register

SHAPE = 1.1  # factor by which the aspect ratio may differ from the image's


def smaller_grid(grid: tuple[int, int], count: int) -> tuple[int, int]:
    """Return the grid (H, W) with the most cells, at most `count` (1 or more), near the image's aspect
    ratio.
    """
    height, width = grid
    if count >= height * width:
        return grid
    shape = width / height
    sizes = [(h, w) for h in range(1, min(height, count) + 1) for w in range(1, min(width, count // h) + 1)]
    far = {(h, w): abs(math.log(w / h / shape)) for h, w in sizes}
    near = [size for size in sizes if far[size] <= math.log(SHAPE) + 1e-9]
    if near:  # else the nearest ratio there is
        return min(near, key=lambda size: (-size[0] * size[1], round(far[size], 9), size[0]))
    return min(sizes, key=lambda size: (round(far[size], 9), -size[0] * size[1], size[0]))


register(
    Method(
        DOWNSAMPLE,
        "null",
        resize=smaller_grid,
        needs=frozenset({"sizes"}),
        contender=True,
        label="the image shrunk to as many tokens",
    )
)
