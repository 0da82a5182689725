"""Downsampling, the null of pixels: the image shrunk until it has no more cells than the budget.

    smaller_grid((32, 32), 273) -> (16, 17)

Not a selection: the smaller image is encoded in place of the large one.
"""

from __future__ import annotations

import math

from arr_coc_lab.results.kinds import DOWNSAMPLE
from arr_coc_lab.rivals.method import Method, Style, register

SHAPE = 1.1
"""How far a smaller grid may be from the image's shape, as a factor."""


def smaller_grid(grid: tuple[int, int], count: int) -> tuple[int, int]:
    """The grid with the most cells, at most `count`, in the shape of the image's own.

    The shape may differ by the factor `SHAPE`; where that leaves nothing the nearest shape is taken. Equally
    large grids: the nearer shape, then the wider one.

    Args:
        grid: (H, W) of the image.
        count: cells to spend, at least 1.
    """
    height, width = grid
    if count >= height * width:
        return grid
    shape = width / height
    sizes = [(h, w) for h in range(1, min(height, count) + 1) for w in range(1, min(width, count // h) + 1)]
    far = {(h, w): abs(math.log(w / h / shape)) for h, w in sizes}
    near = [size for size in sizes if far[size] <= math.log(SHAPE) + 1e-9]
    if near:
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
        style=Style(marker="v"),
    )
)
