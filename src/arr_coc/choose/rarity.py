"""Rarity: how unlike anything else in its picture each cell is, whatever the picture shows.

    rarity(image [B, 3, h, w], grid=(H, W)) -> [B, H, W] in [0, 1)
    standing_out(map [B, H, W]) -> [B] in [0, 1]     1: few cells, as a red dot among blue; 0: many

A window around each cell is known by its mean colour, its spread and the directions of its edges, at three
sizes; it is as rare as its third most similar window elsewhere is far from it. So the one large circle of
many, the one that is turned and the place where one is missing are rare, none of which local contrast finds.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from kornia.color import rgb_to_grayscale
from torch import Tensor

from arr_coc.choose.channels import COARSE, lab_hue
from arr_coc.choose.filters import Grid2D, cell_mean, sobel

WINDOWS: tuple[float, ...] = (0.7, 1.4, 2.8)  # standard deviations of windows, in cells
REACH = 2.5  # standard deviations at which a window ends
APART = 2.0  # standard deviations (and half a cell) that another window has to be away to be elsewhere
SIMILAR = 3  # the place among the most similar windows of the one that counts
ROOM = 8.0  # cells of the grid's shorter side per standard deviation of a window, at least
EDGE_POWER = 0.7  # of an edge's strength: a faint outline says nearly as much of a shape as a strong one
HALF = 0.001  # squared distance at which rarity is a half
ROUNDING = 1e-6  # squared distances up to this are none
CLEAR = 3.0  # odds of rarity from which more of it makes a cell stand out little further
CROWD = 0.1  # share of the cells that is many: what as many have doesn't stand out
MAX_WINDOWS = 1600  # that each is compared with; of more, evenly spaced ones


@torch.no_grad()
def rarity(image: Tensor, grid: Grid2D) -> Tensor:
    """Return how rare each cell's surroundings are in their picture, float32 [B, H, W] in [0, 1).

    `image` is float [B, 3, h, w] in [0, 1], of any size. 0 where three windows elsewhere are the same: all
    over a blank page, a regular pattern, or a grid too small to have an elsewhere.
    """
    maps = _look(image.float().clamp(0, 1), grid)
    far = torch.stack([_distances(maps, scale) * scale for scale in _windows(grid)]).mean(0)
    return far / (far + HALF)


def standing_out(salient: Tensor) -> Tensor:
    """Return how far the best cell of a map of `rarity` stands above all but a tenth, [B, ...] -> [B] in [0,
    1].

    1 where the rest is nothing beside it, 0 where a tenth of all cells has as much, or none has any.
    """
    odds = torch.special.logit(salient.flatten(1).float(), eps=1e-6).exp() - 1e-6
    clear = (odds / (odds + CLEAR)).clamp_min(0)
    most, crowd = clear.amax(1), clear.quantile(1 - CROWD, dim=1)
    return torch.where(most > 1e-6, 1 - crowd / most.clamp_min(1e-6), 0.0)


def _windows(grid: Grid2D) -> tuple[float, ...]:
    fitting = tuple(scale for scale in WINDOWS if scale * ROOM <= min(grid))
    return fitting or WINDOWS[:1]


def _look(image: Tensor, grid: Grid2D) -> Tensor:
    """Cell means of brightness, its square, hue, and edges by direction, [B, 11, H, W]."""
    height, width = (min(side, COARSE * cells) for side, cells in zip(image.shape[-2:], grid, strict=True))
    coarse = cell_mean(image, (height, width))
    luma = rgb_to_grayscale(coarse)
    dx, dy = sobel(luma)
    length = torch.hypot(dx, dy)
    # The circular harmonics of the gradient's direction: their sums over a window are the Fourier series of
    # its histogram of directions. The first is left out: around anything closed it sums to nothing.
    x, y = dx / (length + 1e-3), dy / (length + 1e-3)
    second = x * x - y * y, 2 * x * y
    third = x * second[0] - y * second[1], x * second[1] + y * second[0]
    fourth = second[0] ** 2 - second[1] ** 2, 2 * second[0] * second[1]
    edge = (length / 4) ** EDGE_POWER
    directions = [edge * harmonic for harmonic in (*second, *third, *fourth)]
    return cell_mean(torch.cat((luma, luma**2, lab_hue(coarse) / 100, edge, *directions), 1), grid)


def _distances(maps: Tensor, scale: float) -> Tensor:
    """Return the squared distance of each cell's window to its third most similar elsewhere, [B, H, W]."""
    rows, columns = maps.shape[-2:]
    down, across = (_blur(side, scale).to(maps) for side in (rows, columns))
    mean = down @ maps @ across.mT
    spread = (mean[:, 1:2] - mean[:, :1] ** 2).clamp_min(0).sqrt()
    windows = torch.cat((mean[:, :1], spread, mean[:, 2:]), 1)
    windows = windows - windows.mean((-2, -1), keepdim=True)
    step = 1
    while -(-rows // step) * -(-columns // step) > MAX_WINDOWS:
        step += 1
    some = windows[..., ::step, ::step].flatten(2)  # (B, C, M)
    every = windows.flatten(2)  # (B, C, N)
    squared = every.square().sum(1)[:, :, None] + some.square().sum(1)[:, None] - 2 * every.mT @ some
    near = _near((rows, columns), step, APART * scale + 0.5).to(maps.device)
    squared = squared.masked_fill_(near, torch.inf)
    kept = min(SIMILAR, squared.shape[-1])
    third = squared.topk(kept, dim=-1, largest=False).values[..., -1].nan_to_num(posinf=0.0)
    return (third - ROUNDING).clamp_min(0).view(-1, rows, columns)


@lru_cache(maxsize=64)
def _blur(side: int, scale: float) -> Tensor:
    """Gaussian means along a side as a matrix [side, side]; windows end with the picture."""
    with torch.inference_mode(False):
        place = torch.arange(side, dtype=torch.float32)
        apart = (place[:, None] - place).abs()
        weights = torch.exp(-(apart**2) / (2 * scale**2)) * (apart <= REACH * scale)
        return weights / weights.sum(1, keepdim=True)


@lru_cache(maxsize=16)
def _near(grid: Grid2D, step: int, reach: float) -> Tensor:
    """Return which windows are too near to each cell to be elsewhere, bool [N, M]; M of every `step`-th."""
    with torch.inference_mode(False):
        down, across = (
            (torch.arange(side)[:, None] - torch.arange(0, side, step)).abs() < reach for side in grid
        )
        return (down[:, None, :, None] & across[None, :, None, :]).flatten(2).flatten(0, 1)
