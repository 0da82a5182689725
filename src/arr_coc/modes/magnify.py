"""Magnified cells: each kept cell is read from your original picture, finer than the model's own input.

    magnify=1        a kept cell is one token
    magnify=2        a kept cell is 2 x 2 tokens of the picture at twice the scale; a quarter as many are kept
    magnify="auto"   as fine as the picture is, while the budget buys MIN_CELLS of it, and as many as needed

The budget still counts the visual tokens that the language model reads of an image. A grid (H, W) at a scale
has about (scale * H, scale * W) cells of the same px; a fine cell is kept if its centre lies in a kept cell.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation, Grid
from arr_coc.choose.budget import AUTO, Budget, budget_count
from arr_coc.files.question import kind_of
from arr_coc.seam.assembly import covering_cells

Magnify = float | str  # a scale from 1 to MAX_SCALE, or "auto"

MAX_SCALE = 3.0
MIN_CELLS = 64  # no fewer cells are kept for the sake of their scale
MIN_SCALE = 1.1  # less isn't worth other pixels than the model was given
STEP = 0.98  # by which a scale falls until the fine cells fit the budget

_REMEDY = f"use a number from 1 to {MAX_SCALE:g}, or 'auto'"


def parse_magnify(value: Magnify) -> Magnify:
    """Return a magnification as a float from 1 to MAX_SCALE, or "auto"; raise ValueError for others."""
    scale: Any = value
    if isinstance(value, str):
        if value.strip().lower() == AUTO:
            return AUTO
        try:
            scale = float(value)
        except ValueError:
            scale = math.nan
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real):
        raise ValueError(f"magnify {value!r} is {kind_of(value)}; {_REMEDY}")
    if not 1 <= scale <= MAX_SCALE:
        raise ValueError(f"magnify {value!r} is not from 1 to {MAX_SCALE:g}; {_REMEDY}")
    return float(scale)


def scales_of(
    magnify: Magnify,
    pictures: Sequence[Image],
    grids: Sequence[Grid],
    budgets: Sequence[Budget | None],
    side: int,
) -> list[float]:
    """Return by how much the kept cells of each image, `side` px wide, are magnified.

    A scale that you name is used as it is. "auto" stops where the picture has no more pixels, or where the
    image's entry in `budgets` (None: all cells) would buy fewer than MIN_CELLS cells.
    """
    if magnify != AUTO:
        return [float(magnify)] * len(grids)
    scales = []
    for picture, (_, height, width), budget in zip(pictures, grids, budgets, strict=True):
        if budget is None:  # all cells are kept, as they are
            scales.append(1.0)
            continue
        tokens = tokens_of(budget, height * width)
        bought = MAX_SCALE if tokens is None else math.sqrt(tokens / MIN_CELLS)
        scale = min(picture.width / (width * side), picture.height / (height * side), bought, MAX_SCALE)
        scales.append(scale if scale >= MIN_SCALE else 1.0)
    return scales


def tokens_of(budget: Budget | None, cells: int) -> int | None:
    """Return how many visual tokens a budget allows of an image; None: as many as its `cells` need."""
    if isinstance(budget, str):
        return None
    return cells if budget is None else budget if isinstance(budget, int) else budget_count(budget, cells)


def cells_at(
    magnify: Magnify, scales: Sequence[float], budgets: Sequence[Budget | None], sizes: Sequence[int]
) -> tuple[list[Budget | None], list[int | None]]:
    """Turn token budgets of magnified images into cell budgets, and each one's most cells (None: any)."""
    allowed: list[Budget | None] = []
    most: list[int | None] = []
    for scale, budget, cells in zip(scales, budgets, sizes, strict=True):
        tokens = tokens_of(budget, cells)
        if scale == 1 or tokens is None:
            allowed.append(budget)
            most.append(None)
            continue
        bought = min(cells, max(1, int(tokens / scale**2)))
        allowed.append(AUTO if magnify == AUTO else bought)
        most.append(bought)
    return allowed, most


def finer_grid(allocation: Allocation, scale: float, tokens: int | None) -> Grid:
    """Return the grid at a scale, or the next at which kept cells are at most `tokens` (None: no limit)."""
    frames, height, width = allocation.grid
    while scale > 1:
        grid = (frames, round(scale * height), round(scale * width))
        if tokens is None or len(fine_cells(allocation, grid)) <= tokens:
            return grid
        scale *= STEP
    return allocation.grid


def fine_cells(allocation: Allocation, grid: Grid) -> Tensor:
    """Return the cells of a finer grid whose centres lie in kept cells: long [K'], ascending."""
    every = torch.arange(grid[1] * grid[2])
    return allocation.mask().flatten()[covering_cells(allocation.grid, grid, every)].nonzero().flatten()


def scale_of(grid: Grid, fine: Grid) -> float:
    """Return how many times finer one grid is than another, as the geometric mean over its sides."""
    return math.sqrt(fine[1] * fine[2] / (grid[1] * grid[2]))
