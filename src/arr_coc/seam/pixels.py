"""Preprocessed pixels: undoing normalisation, patches of pictures and of kept cells, scaled-down pictures.

Pictures are [3, h, w]. Qwen's processors write patches of p x p px block by block of m x m: the m*m patches
of cell 0, then those of cell 1, in raster order of the cells. A cell's rows in `pixel_values` are therefore
consecutive, and any number of cells can be encoded alone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from arr_coc.choose.allocation import Grid
from arr_coc.seam.assembly import Layout

LEVELS = 255
RANGE_SLACK = 1e-3  # how far a pixel may lie outside [0, 1] by rounding
# Measured on random pictures: float32 1e-5, float16 0.03; 0.25 under the wrong hypothesis and in bfloat16.
OFF_LEVEL = 0.1  # mean distance to the nearest level, in levels, above which pixels aren't whole levels


def are_normalised(pictures: Sequence[Tensor], mean: Tensor, std: Tensor, usual: bool = True) -> bool:
    """Return whether preprocessed pictures, float32 [3, h, w], are normalised: (k / 255 - mean) / std.

    A pixel outside [0, 1] says so. If all lie inside (a pale picture), `usual`, the processor's default,
    decides; but pixels on whole levels k / 255, which undoing would move off them, aren't normalised.
    """
    bounds = torch.stack([torch.stack(picture.aminmax()) for picture in pictures])  # (images, 2)
    if bool(bounds.min() < -RANGE_SLACK) or bool(bounds.max() > 1 + RANGE_SLACK):
        return True
    if not usual:
        return False
    undone = [picture * std.to(picture) + mean.to(picture) for picture in pictures]
    return not (off_level(undone) > OFF_LEVEL >= off_level(pictures))


def off_level(pictures: Sequence[Tensor]) -> float:
    """Return the mean distance of pixels to the nearest of the levels k / 255, in levels: 0 to 0.5."""
    scaled = torch.cat([picture.flatten() for picture in pictures]) * LEVELS  # over all pictures
    return float((scaled - scaled.round()).abs().mean())


def undo_normalisation(
    pictures: Sequence[Tensor], mean: Tensor, std: Tensor, usual: bool = True
) -> list[Tensor]:
    """Return pictures in [0, 1] from preprocessed ones; those that weren't normalised are only clamped."""
    if not are_normalised(pictures, mean, std, usual):
        return [picture.clamp(0.0, 1.0) for picture in pictures]
    return [p.mul(std.to(p)).add_(mean.to(p)).clamp_(0.0, 1.0) for p in pictures]


# ---- patches and pictures


def to_picture(
    rows: Tensor, grid: tuple[int, int, int], merge: int, patch: int, frames: int, frame: int = 0
) -> Tensor:
    """Return the picture [3, h*patch, w*patch] of patches [t*h*w, 3 * frames * patch**2]; inverse of
    `to_patches`.

    `grid` (t, h, w) is of patches, `merge` of them along each side of a cell; `frame` is one of a patch's
    frames.
    """
    t, h, w = grid
    m, p = merge, patch
    blocks = rows.view(t, h // m, w // m, m, m, -1, frames, p, p)[0, ..., frame, :, :]
    # (h/m, w/m, m, m, 3, p, p) -> (3, h/m, m, p, w/m, m, p)
    return blocks.permute(4, 0, 2, 5, 1, 3, 6).reshape(-1, h * p, w * p)


def to_pictures(rows: Tensor, grids: Sequence[Grid], merge: int, patch: int, frames: int) -> list[Tensor]:
    """As `to_picture` for several pictures, one's rows behind the other's."""
    pictures = rows.flatten(1).split([t * h * w for t, h, w in grids])
    return [to_picture(*each, merge, patch, frames) for each in zip(pictures, grids, strict=True)]


def to_patches(picture: Tensor, merge: int, patch: int, frames: int) -> Tensor:
    """Return the patches of a picture [3, h, w]: [(h/patch) * (w/patch), 3 * frames * patch**2]."""
    m, p = merge, patch
    channels, height, width = picture.shape
    blocks = picture.view(channels, height // (m * p), m, p, width // (m * p), m, p)
    blocks = blocks.permute(1, 4, 2, 5, 0, 3, 6).unsqueeze(5)  # (h/m, w/m, m, m, 3, 1, p, p)
    return blocks.expand(*blocks.shape[:5], frames, p, p).reshape(-1, channels * frames * p * p)


def channels_first(rows: Tensor) -> Tensor:
    """Return patches with the colours of a pixel side by side, as patches of three planes: [n, p * p * 3]."""
    return rows.unflatten(1, (-1, 3)).transpose(1, 2).flatten(1)


def channels_last(rows: Tensor) -> Tensor:
    """Return the reverse of `channels_first`."""
    return rows.unflatten(1, (3, -1)).transpose(1, 2).flatten(1)


def patch_map(cells: Tensor, grid: Grid, merge: int) -> Tensor:
    """Return the patches of cells [T*H*W, merge**2 * D] (raster order) as a map [T, D, H * merge, W *
    merge].
    """
    t, h, w = grid
    blocks = cells.view(t, h, w, merge, merge, -1).permute(0, 5, 1, 3, 2, 4)  # (T, D, H, m, W, m)
    return blocks.reshape(t, -1, h * merge, w * merge)


def patch_map_rows(patches: Tensor, merge: int) -> Tensor:
    """Return the patches [T, D, H * merge, W * merge] of a map as rows, cell by cell: [T*H*W * merge**2,
    D].
    """
    t, dim, height, width = patches.shape
    blocks = patches.view(t, dim, height // merge, merge, width // merge, merge).permute(0, 2, 4, 3, 5, 1)
    return blocks.reshape(-1, dim)


def coarse_grid(height: int, width: int, cells: int) -> tuple[int, int]:
    """Return the largest grid (h, w) of at most `cells` cells in the shape of height x width, never larger.

    One side is any whole number, the other the nearest that keeps the shape; at least 1.
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
    """Pictures scaled down to grids of at most `cells` cells of `side` px; smaller ones as they are."""
    most = [cells] * len(grids) if isinstance(cells, int) else cells
    views = []
    for picture, (_, height, width), few in zip(pictures, grids, most, strict=True):
        h, w = coarse_grid(height, width, few)
        views.append(picture if (h, w) == (height, width) else shrink(picture, (h * side, w * side)))
    return views


# ---- pixels that a model can't read with a prompt

REMEDY = "pass all that the model's own processor makes of a prompt and its images, unchanged"
# errors of the machine, whatever the inputs
OUTSIDE = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError))
# What a model raises of pixels that it can't read.
MISFITS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)


@contextmanager
def reading_pixels(model_type: str) -> Generator[None]:
    """Turns what goes wrong in reading a call's pixels into a ValueError that names it and the remedy."""
    try:
        yield
    except (*OUTSIDE, NotImplementedError):
        raise
    except MISFITS as error:
        if isinstance(error, ValueError) and _is_own(error):
            raise
        what = " ".join(str(error).split()) or "too few of something"
        raise ValueError(
            f"{model_type} can't read these images with this prompt "
            f"({type(error).__name__}: {what}); {REMEDY}"
        ) from error


def _is_own(error: BaseException) -> bool:
    """Return whether an error was raised by this package, whose messages have their remedy."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return name.startswith("arr_coc.")


# ---- some cells alone: a tower takes patches in any number, with the positions and segments they had


def numbered_cells(layout: Layout, keep: Sequence[Tensor]) -> Tensor:
    """Numbers the kept cells (per image rising raster indices [K_i]) over all images: long [K], rising.

    A ValueError for another number of images, nothing kept, or indices out of bounds or not rising.
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
    cells = torch.cat(numbered)  # (K,), offset by the cells of the images before
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
    """Return the rows of `pixel_values` of some cells, `unit` patches each: [K] -> long [K * unit]."""
    return (cells[:, None] * unit + torch.arange(unit, device=cells.device)).flatten()


def kept_seqlens(rows: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Return boundaries int32 [n' + 1] of kept rows' attention segments, from those [n + 1] of all rows."""
    ends = torch.searchsorted(rows, cu_seqlens.to(rows), out_int32=True)  # kept rows before each boundary
    return ends.unique_consecutive()


def kept_windows(cells: Tensor, order: Tensor, cu_seqlens: Tensor, unit: int) -> tuple[Tensor, Tensor]:
    """Return the order and boundaries of the attention windows of kept cells [K]: each stays in its own
    window.

    `order` [N] are all cells in the order of their windows, `cu_seqlens` [n + 1] the windows' boundaries in
    patches, `unit` the patches of a cell. Returns the kept cells, numbered among the kept, in window order,
    long [K], and the boundaries of the windows in patches, int32 [n' + 1].
    """
    places = order.to(cells.device).argsort()[cells]  # argsort inverts the order: (K,) places in it
    ordered, index = places.sort()
    return index, kept_seqlens(ordered, cu_seqlens.to(cells.device) // unit) * unit
