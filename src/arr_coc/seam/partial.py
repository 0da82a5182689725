"""Encoding of some cells alone: the patches of kept cells, and their attention segments in the vision tower.

A Qwen tower takes patches in any number and order; their positions, and the segments within which they attend
to each other, are tensors that it would compute from the grid. Here they are computed for the whole grid by
transformers' own helpers and then indexed: every kept patch keeps its position and its segment, and segments
without a kept patch vanish. With every cell kept they equal the stock ones.

Cells are numbered over all images of a call, in order; a cell is m*m consecutive rows of `pixel_values`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from arr_coc.seam.assembly import Layout


def numbered_cells(layout: Layout, keep: Sequence[Tensor]) -> Tensor:
    """Number the kept cells over all images: long [K], rising.

    Args:
        layout: grids of the images.
        keep: per image long [K_i], raster indices, rising.

    Raises:
        ValueError: another number of images, nothing kept, or indices that are out of bounds or not rising.
    """
    if len(keep) != len(layout.grids):
        raise ValueError(f"{len(keep)} keep lists for {len(layout.grids)} images; pass one for each image")
    if not sum(len(indices) for indices in keep):
        raise ValueError("no cell is kept in any image; keep at least one")
    start, numbered, ends = 0, [], []
    for indices, (t, h, w) in zip(keep, layout.grids, strict=True):
        numbered.append(indices.to(layout.cells[0].device) + start)
        start += t * h * w
        ends.append(start)
    cells = torch.cat(numbered)
    bounds = torch.tensor([0, *ends], device=cells.device)
    image = torch.arange(len(keep), device=cells.device).repeat_interleave(
        torch.tensor([len(indices) for indices in keep], device=cells.device), output_size=len(cells)
    )
    wrong = (cells < bounds[image]) | (cells >= bounds[image + 1])
    wrong[1:] |= cells[1:] <= cells[:-1]
    if bool(wrong.any()):
        raise ValueError(
            f"kept cells must be rising indices into grids {layout.grids}; sort them and drop repeated ones"
        )
    return cells


def patch_rows(cells: Tensor, unit: int) -> Tensor:
    """The rows of `pixel_values` of some cells, `unit` patches each: [K] -> long [K * unit]."""
    return (cells[:, None] * unit + torch.arange(unit, device=cells.device)).flatten()


def kept_seqlens(rows: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Boundaries of the attention segments of kept rows.

    Args:
        rows: long [R], rising.
        cu_seqlens: [n + 1], boundaries of the segments of all rows.

    Returns:
        int32 [n' + 1], n' <= n: segments without a kept row vanish.
    """
    ends = torch.searchsorted(rows, cu_seqlens.to(rows), out_int32=True)  # kept rows before each boundary
    return ends.unique_consecutive()


def kept_windows(cells: Tensor, order: Tensor, cu_seqlens: Tensor, unit: int) -> tuple[Tensor, Tensor]:
    """The order and boundaries of the attention windows of kept cells: each stays in its own window.

    Args:
        cells: long [K], rising.
        order: long [N], all cells in the order of their windows.
        cu_seqlens: [n + 1], boundaries of the windows in patches.
        unit: patches of a cell.

    Returns:
        Long [K], the kept cells (numbered among the kept) in the order of their windows, and int32 [n' + 1],
        the boundaries of their windows in patches.
    """
    places = order.to(cells.device).argsort()[cells]  # of each kept cell, in that order
    ordered, index = places.sort()
    return index, kept_seqlens(ordered, cu_seqlens.to(cells.device) // unit) * unit
