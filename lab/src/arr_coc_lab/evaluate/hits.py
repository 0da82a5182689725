"""Hits: whether the one box that a choice is surest of is a labelled one, as detectors are measured."""

from __future__ import annotations

from torch import Tensor

from arr_coc.choose.allocation import Allocation, touching
from arr_coc.files.images import Box

MIN_IOU = 0.5  # intersection over union from which on a box is a hit


def is_hit(allocation: Allocation, evidence: Tensor) -> bool:
    """Return whether the best box of an allocation's evidence overlaps a labelled one by `MIN_IOU` or more.

    Both are measured in whole cells, as recall is: a choice knows nothing finer, and print is often smaller
    than a cell. `evidence`, bool [H, W], are the cells of the labelled boxes; those that touch are one box,
    as kept cells that touch are (`Allocation.evidence`). No hit where the allocation has no such box.
    """
    _, rows, columns = allocation.grid
    boxes = allocation.evidence((columns, rows))  # in px of a picture with a pixel a cell
    return bool(boxes) and any(iou(boxes[0].box, box) >= MIN_IOU for box in labelled_boxes(evidence))


def labelled_boxes(evidence: Tensor) -> list[Box]:
    """Return the boxes (x0, y0, x1, y1), in cells, around each group of touching cells of a mask [H, W]."""
    cells = evidence.nonzero()
    boxes = []
    for group in touching([(0, *cell) for cell in cells.tolist()]):
        (y0, x0), (y1, x1) = cells[group].amin(0).tolist(), (cells[group].amax(0) + 1).tolist()
        boxes.append((x0, y0, x1, y1))
    return boxes


def iou(a: Box, b: Box) -> float:
    """Intersection over union of two boxes (x0, y0, x1, y1) that have an area."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0.0, width) * max(0.0, height)
    areas = [(x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in (a, b)]
    return both / (sum(areas) - both)
