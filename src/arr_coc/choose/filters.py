"""Filters on maps [B, c, h, w]: means over cells, edges, blurs and distances; unit vectors.

`cell_mean`, `sobel` and `laplacian` are sums of slices, several times faster on a CPU than convolving.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from kornia.filters import gaussian_blur2d
from torch import Tensor

Grid2D = tuple[int, int]  # (H, W): rows and columns of cells


def cell_mean(x: Tensor, grid: Grid2D) -> Tensor:
    """Mean over each cell of a grid (H, W), [B, c, h, w] -> [B, c, H, W], as by `adaptive_avg_pool2d`."""
    (h, w), (rows, columns) = x.shape[-2:], grid  # pixels, cells
    if h % rows or w % columns:
        return F.adaptive_avg_pool2d(x, grid)
    return x.unflatten(-2, (rows, -1)).mean(-2).unflatten(-1, (columns, -1)).mean(-1)


def sobel(luma: Tensor) -> tuple[Tensor, Tensor]:
    """Sobel derivatives 4 d/dx and 4 d/dy of a map [B, 1, h, w]: 4 at a straight black-white edge."""
    x = _replicate_border(luma)
    # Each kernel is (1, 2, 1) along one axis, which smooths, times (-1, 0, 1) along the other.
    smooth = torch.add(x[..., :-2, :], x[..., 1:-1, :], alpha=2).add_(x[..., 2:, :])  # (B, 1, h, w + 2)
    step = x[..., 2:, :] - x[..., :-2, :]
    dy = torch.add(step[..., :-2], step[..., 1:-1], alpha=2).add_(step[..., 2:])
    return smooth[..., 2:] - smooth[..., :-2], dy


def laplacian(luma: Tensor) -> Tensor:
    """Sum of the eight neighbours less eight times the pixel, [B, 1, h, w]."""
    x = _replicate_border(luma)
    # Sums of three along each axis are the 3x3 sum, of which nine times the pixel is taken off.
    columns = (x[..., :-2, :] + x[..., 1:-1, :]).add_(x[..., 2:, :])  # (B, 1, h, w + 2)
    return (columns[..., :-2] + columns[..., 1:-1]).add_(columns[..., 2:]).sub_(luma, alpha=9)


def _replicate_border(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1, 1, 1), mode="replicate")


def surround(x: Tensor, cells: float) -> Tensor:
    """Gaussian blur of a map on the grid, [B, c, H, W]; `cells` is the standard deviation in cells."""
    size = 2 * int(3 * cells) + 1
    return gaussian_blur2d(x, (size, size), (cells, cells), border_type="replicate")


def distance_to(marked: Tensor) -> Tensor:
    """Distance of each cell to the nearest marked one, bool [B, H, W] -> [B, H, W] in [0, 1].

    A share of the grid's diagonal; 1 everywhere if no cell is marked.
    """
    rows, columns = marked.shape[-2:]
    far = float(rows**2 + columns**2)
    y, x = (torch.arange(n, device=marked.device, dtype=torch.float32) for n in (rows, columns))
    # Exact and separable: the least squared distance along rows first, then along columns.
    start = torch.where(marked, 0.0, far)  # (B, H, W)
    along = (start[:, :, None, :] + (x[:, None] - x) ** 2).amin(-1)  # (B, H, W)
    squared = (along[:, None] + ((y[:, None] - y) ** 2)[None, :, :, None]).amin(2)  # (B, H, W)
    return (squared / far).clamp(max=1).sqrt()


def unit(x: Tensor, dim: int = -1) -> Tensor:
    """Vectors along a dimension divided by their length, in float32; zeros stay zeros, nothing overflows."""
    x = x.float()
    x = x / x.abs().amax(dim, keepdim=True).clamp_min(1e-12)
    return x / x.norm(dim=dim, keepdim=True).clamp_min(1e-12)


@lru_cache(maxsize=32)
def position_grid(grid: Grid2D, device: torch.device) -> Tensor:
    """Centre of each cell as a share of the image's height and width, [2, H, W]: y, then x, in (0, 1)."""
    y, x = ((torch.arange(n, device=device) + 0.5) / n for n in grid)
    return torch.stack(torch.meshgrid(y, x, indexing="ij"))
