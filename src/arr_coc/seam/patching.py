"""Conversion of pictures to patches in Qwen's merge-block order and back, and scaled-down pictures.

Qwen's image processors cut a picture into patches of p x p px and write them block by block of m x m patches:
the m*m patches of cell 0, then those of cell 1, in raster order of the cells. A still image is repeated in
all `frames` frames of a patch. `to_patches(to_picture(rows, ...), ...)` equals `rows`.

These are functions of tensors alone; pictures are [3, h, w] with h and w whole cells of m*p px.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from arr_coc.choose.allocation import Grid


def to_picture(
    rows: Tensor, grid: tuple[int, int, int], merge: int, patch: int, frames: int, frame: int = 0
) -> Tensor:
    """The picture that patches were cut from.

    Args:
        rows: [t*h*w, 3 * frames * patch**2].
        grid: the patch grid (t, h, w).
        merge: patches along each side of a cell.
        patch: px along each side of a patch.
        frames: frames of a patch.
        frame: which of them; those of a still are all the same.

    Returns:
        [3, h*patch, w*patch].
    """
    t, h, w = grid
    m, p = merge, patch
    blocks = rows.view(t, h // m, w // m, m, m, -1, frames, p, p)[0, ..., frame, :, :]
    # (h/m, w/m, m, m, 3, p, p) -> (3, h/m, m, p, w/m, m, p)
    return blocks.permute(4, 0, 2, 5, 1, 3, 6).reshape(-1, h * p, w * p)


def to_pictures(rows: Tensor, grids: Sequence[Grid], merge: int, patch: int, frames: int) -> list[Tensor]:
    """The pictures that patches, one picture's behind the other's, were cut from; as `to_picture`.

    Args:
        rows: [patches of all pictures, 3 * frames * patch**2], or with the three sides of a patch apart.
        grids: the patch grid (t, h, w) of each picture.
        merge: patches along each side of a cell; 1 where they stand row by row.
        patch: px along each side of a patch.
        frames: frames of a patch.
    """
    pictures = rows.flatten(1).split([t * h * w for t, h, w in grids])
    return [to_picture(*each, merge, patch, frames) for each in zip(pictures, grids, strict=True)]


def to_patches(picture: Tensor, merge: int, patch: int, frames: int) -> Tensor:
    """The patches of a picture [3, h, w]: [(h/patch) * (w/patch), 3 * frames * patch**2]."""
    m, p = merge, patch
    channels, height, width = picture.shape
    blocks = picture.view(channels, height // (m * p), m, p, width // (m * p), m, p)
    blocks = blocks.permute(1, 4, 2, 5, 0, 3, 6).unsqueeze(5)  # (h/m, w/m, m, m, 3, 1, p, p)
    return blocks.expand(*blocks.shape[:5], frames, p, p).reshape(-1, channels * frames * p * p)


def patch_map(cells: Tensor, grid: Grid, merge: int) -> Tensor:
    """The patches of cells as a map.

    Args:
        cells: [T*H*W, merge**2 * D], raster order, the patches of each side by side.
        grid: (T, H, W) of the cells.
        merge: patches along each side of a cell.

    Returns:
        [T, D, H * merge, W * merge].
    """
    t, h, w = grid
    blocks = cells.view(t, h, w, merge, merge, -1).permute(0, 5, 1, 3, 2, 4)  # (T, D, H, m, W, m)
    return blocks.reshape(t, -1, h * merge, w * merge)


def patch_map_rows(patches: Tensor, merge: int) -> Tensor:
    """The patches [T, D, H * merge, W * merge] of a map as rows, cell by cell: [T*H*W * merge**2, D]."""
    t, dim, height, width = patches.shape
    blocks = patches.view(t, dim, height // merge, merge, width // merge, merge).permute(0, 2, 4, 3, 5, 1)
    return blocks.reshape(-1, dim)


def coarse_grid(height: int, width: int, cells: int) -> tuple[int, int]:
    """The largest grid of at most `cells` cells with the shape of a grid of height x width.

    One side is any whole number, the other is the nearest one that keeps the shape. The result is never
    larger than the grid, and never empty (a strip that is too long for that loses its shape).

    Raises:
        ValueError: `cells` is below 1.
    """
    if cells < 1:
        raise ValueError(f"cells {cells} is below 1; use the most cells of a coarse view, such as 256")
    if height * width <= cells:
        return height, width
    by_height = [(h, max(round(h * width / height), 1)) for h in range(1, min(height, cells) + 1)]
    by_width = [(max(round(w * height / width), 1), w) for w in range(1, min(width, cells) + 1)]
    return max(
        (size for size in by_height + by_width if size[0] * size[1] <= cells), key=lambda s: s[0] * s[1]
    )


def shrink(picture: Tensor, size: tuple[int, int]) -> Tensor:
    """Scale a picture [3, h, w] down to `size` px, bicubic and antialiased, within each channel's range."""
    small = F.interpolate(picture[None].float(), size, mode="bicubic", antialias=True, align_corners=False)[0]
    flat = picture.float().flatten(1)
    low, high = (bound[:, None, None] for bound in (flat.amin(1), flat.amax(1)))
    return small.clamp(low, high).to(picture.dtype)


def coarse_views(
    pictures: Sequence[Tensor], grids: Sequence[Grid], cells: int | Sequence[int], side: int
) -> list[Tensor]:
    """Pictures scaled down to the largest grids of at most `cells` cells; smaller ones as they are.

    Args:
        pictures: [3, h, w] each, of whole cells.
        grids: (1, H, W) cells of each.
        cells: the most cells of a view, or of that of each picture.
        side: px along each side of a cell.

    Raises:
        ValueError: `cells` is below 1.
    """
    most = [cells] * len(grids) if isinstance(cells, int) else cells
    views = []
    for picture, (_, height, width), few in zip(pictures, grids, most, strict=True):
        h, w = coarse_grid(height, width, few)
        views.append(picture if (h, w) == (height, width) else shrink(picture, (h * side, w * side)))
    return views
