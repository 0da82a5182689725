"""Evidence beside a choice: which boxes of the truth were kept, and how much of them all.

    scored = score(boxes, allocation, picture.size)
    scored.hits, scored.recall        (True, False), 0.75

Cells of a box are those of `data.evidence`, the one rule. A box is a hit if all of its cells were kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from arr_coc.choose.allocation import Allocation
    from arr_coc.data.record import Box


class Scored(NamedTuple):
    """The evidence boxes of a question and what a choice kept of them.

    Attributes:
        boxes: (x0, y0, x1, y1) in px.
        cells: per box its cells in raster order; none of a box outside of the image.
        hits: per box whether all of its cells were kept.
        recall: the share of the cells of all boxes that were kept; None where there are none.
    """

    boxes: tuple[Box, ...]
    cells: tuple[tuple[int, ...], ...]
    hits: tuple[bool, ...]
    recall: float | None

    @property
    def text(self) -> str:
        """In words: "evidence: 5 of 6 cells kept (83 %)"; "" where there is none."""
        if self.recall is None:
            return ""
        every = len({cell for cells in self.cells for cell in cells})
        return f"evidence: {round(self.recall * every)} of {every} cells kept ({self.recall:.0%})"


def score(boxes: Sequence[Box], allocation: Allocation, size: tuple[int, int]) -> Scored:
    """Compare boxes of one image with the cells that were kept of it.

    Args:
        boxes: in px of the image.
        allocation: of one frame.
        size: (width, height) of the image.
    """
    if not boxes:
        return Scored((), (), (), None)
    from arr_coc.data.evidence import evidence_cells  # with the readers of all data sets

    kept = set(allocation.keep.tolist())
    _, height, width = allocation.grid
    cells = tuple(
        tuple(evidence_cells([box], (height, width), size).flatten().nonzero().flatten().tolist())
        for box in boxes
    )
    every = {cell for one in cells for cell in one}
    hits = tuple(bool(one) and kept.issuperset(one) for one in cells)
    return Scored(tuple(boxes), cells, hits, len(every & kept) / len(every) if every else None)


def check_boxes(boxes: Sequence[Box]) -> None:
    """Check that boxes have an inside.

    Raises:
        ValueError: one has none, or is no four finite numbers.
    """
    for box in boxes:
        if len(box) != 4 or not all(map(math.isfinite, box)) or not (box[0] < box[2] and box[1] < box[3]):
            raise ValueError(f"the evidence box {tuple(box)} must be x0, y0, x1, y1 with x0 < x1 and y0 < y1")


def scaled(boxes: Sequence[Box], before: tuple[int, int], after: tuple[int, int]) -> tuple[Box, ...]:
    """Boxes of an image of one size (width, height), in px of the same at another."""
    x, y = (new / old for new, old in zip(after, before, strict=True))
    return tuple((x0 * x, y0 * y, x1 * x, y1 * y) for x0, y0, x1, y1 in boxes)
