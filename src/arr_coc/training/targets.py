"""Evidence cells of a drawn page, in cells of the bundled model."""

from __future__ import annotations

import numpy as np

CELL = 32
"""Side of a cell in px."""


def evidence_mask(boxes: tuple[tuple[int, int, int, int], ...], height: int, width: int) -> np.ndarray:
    """Cells of which a box covers a part that can be seen, 6 px or more each way.

    Args:
        boxes: (x0, y0, x1, y1) in px of the page.
        height: H, cells.
        width: W, cells.

    Returns:
        Bool [H, W].
    """
    mask = np.zeros((height, width), dtype=bool)
    y, x = CELL * np.arange(height)[:, None], CELL * np.arange(width)
    for x0, y0, x1, y1 in boxes:
        rows = np.minimum(y1, y + CELL) - np.maximum(y0, y)  # (H, 1), px
        columns = np.minimum(x1, x + CELL) - np.maximum(x0, x)  # (W,)
        mask |= np.minimum(rows, columns) >= 6
    return mask
