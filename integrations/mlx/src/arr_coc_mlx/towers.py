"""Vision towers on some cells alone: MLX-VLM's own modules, called on the patches of kept cells.

Positions are computed by the tower for whole grids and then indexed by the kept patches; a segment of
attention is what an image, or a window of it, keeps. Nobody attends to a dropped patch, and none is encoded.
Each function takes the tower, the kept patches [R, values], the grids (1, h, w) of the images in patches, int
[n, 3], and the kept cells of each; it returns the tokens [K, D] of all kept cells, and those of each
deepstack level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import torch

from arr_coc.seam.pixels import kept_windows, patch_rows
from arr_coc_mlx.columns import Keep

Tokens = tuple[mx.array, list[mx.array]]
Tower = Callable[[Any, mx.array, mx.array, Keep], Tokens]


def numbered(keep: Keep, sizes: list[int]) -> np.ndarray:
    """Return the kept cells of all images, numbered over all of them: int [K]."""
    starts = np.cumsum([0, *sizes[:-1]])
    return np.concatenate([cells + start for cells, start in zip(keep, starts, strict=True)])


def rows_of(cells: np.ndarray, unit: int) -> np.ndarray:
    """Return the patches of some cells, `unit` each: int [K * unit]."""
    return patch_rows(torch.from_numpy(cells), unit).numpy()


def qwen2(tower: Any, pixels: mx.array, grids: mx.array, keep: Keep) -> Tokens:
    """Encode by Qwen2-VL's tower."""
    unit, rows = _kept(tower, grids, keep)
    hidden = tower.patch_embed(pixels)
    places = tower.rot_pos_emb(grids)[rows]
    for block in tower.blocks:
        hidden = block(hidden, cu_seqlens=_ends(keep, unit), rotary_pos_emb=places)
    return tower.merger(hidden), []


def qwen2_5(tower: Any, pixels: mx.array, grids: mx.array, keep: Keep) -> Tokens:
    """Encode by Qwen2.5-VL's tower, whose patches stand in the order of their windows; each keeps its own."""
    unit, rows = _kept(tower, grids, keep)
    cells = torch.from_numpy(numbered(keep, _sizes(grids, unit)))
    index, windows = (torch.from_numpy(np.array(part)).long() for part in tower.get_window_index(grids))
    kept_order, bounds = kept_windows(cells, index, windows, unit)
    order, ends = mx.array(kept_order.numpy()), mx.array(bounds.numpy())

    def in_windows(values: mx.array) -> mx.array:
        return values.reshape(len(cells), unit, -1)[order].reshape(len(cells) * unit, -1)

    hidden = in_windows(tower.patch_embed(pixels))
    places = in_windows(tower.rot_pos_emb(grids)[rows])
    for number, block in enumerate(tower.blocks):
        segments = _ends(keep, unit) if number in tower.fullatt_block_indexes else ends
        hidden = block(hidden, cu_seqlens=segments, rotary_pos_emb=places)
    return tower.merger(hidden)[mx.argsort(order)], []


def qwen3(tower: Any, pixels: mx.array, grids: mx.array, keep: Keep) -> Tokens:
    """Encode by Qwen3-VL's tower: also with experts, of Qwen3.5, of Qwen3-Omni, and of Compass."""
    unit, rows = _kept(tower, grids, keep)
    hidden = tower.patch_embed(pixels)
    hidden = hidden + tower.fast_pos_embed_interpolate(grids)[rows].astype(hidden.dtype)
    hidden = hidden.reshape(len(hidden), -1)
    places = tower.rot_pos_emb(grids)
    places = places.reshape(len(places), -1)[rows] if getattr(tower, "use_rope", True) else None
    levels = []
    for number, block in enumerate(tower.blocks):
        hidden = block(hidden, cu_seqlens=_ends(keep, unit), rotary_pos_emb=places)
        if number in tower.deepstack_visual_indexes:
            merger = tower.deepstack_merger_list[tower.deepstack_visual_indexes.index(number)]
            levels.append(merger(hidden))
    return tower.merger(hidden), levels


def glm4v(tower: Any, pixels: mx.array, grids: mx.array, keep: Keep) -> Tokens:
    """Encode by GLM-4V's tower, whose learned positions are read at the places of patches in whole grids."""
    unit, rows = _kept(tower, grids, keep)
    hidden = tower.post_conv_layernorm(tower.patch_embed(pixels))
    places, coordinates = tower.rot_pos_emb(grids)
    down, across = (coordinates[rows, axis] for axis in range(2))
    hidden = tower.embeddings(hidden, [len(cells) * unit for cells in keep], grids, down, across)
    for block in tower.blocks:
        hidden = block(hidden, cu_seqlens=_ends(keep, unit), rotary_pos_emb=places[rows])
    return _glm_cells(tower, hidden), []


def glm_ocr(tower: Any, pixels: mx.array, grids: mx.array, keep: Keep) -> Tokens:
    """Encode by GLM-OCR's tower."""
    unit, rows = _kept(tower, grids, keep)
    hidden = tower.patch_embed(pixels)
    (cos, sin), _ = tower.rot_pos_emb(grids)
    for block in tower.blocks:
        hidden = block(hidden, cu_seqlens=_ends(keep, unit), position_embeddings=(cos[rows], sin[rows]))
    return _glm_cells(tower, hidden), []


def _glm_cells(tower: Any, hidden: mx.array) -> mx.array:
    """Return the tokens of cells, each shrunk by a convolution over its own patches."""
    side = tower.spatial_merge_size
    cells = tower.post_layernorm(hidden).reshape(-1, side, side, hidden.shape[-1])
    return tower.merger(tower.downsample(cells).reshape(len(cells), -1))


class KeptCells:
    """A tower in the place of a model's: encodes kept cells alone and leaves the rows of all others zero.

    Its output has the shape of the stock tower's, so that the model's own code puts it into a prompt.
    """

    def __init__(self, tower: Any, encode: Tower, keep: Keep) -> None:
        self.tower, self.encode, self.keep = tower, encode, keep

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tower, name)

    def __call__(self, pixels: mx.array, grids: mx.array, *_: Any, **__: Any) -> Any:
        """Return the tokens [N, D] of all cells; with deepstack also those of its levels."""
        unit = self.tower.spatial_merge_size**2
        cells = numbered(self.keep, _sizes(grids, unit))
        rows = mx.array(rows_of(cells, unit))
        tokens, levels = self.encode(self.tower, pixels[rows], grids, self.keep)
        total, where = sum(_sizes(grids, unit)), mx.array(cells)
        whole = [_spread(part, where, total) for part in (tokens, *levels)]
        return (whole[0], whole[1:]) if hasattr(self.tower, "deepstack_visual_indexes") else whole[0]


def _spread(tokens: mx.array, where: mx.array, total: int) -> mx.array:
    whole = mx.zeros((total, tokens.shape[-1]), dtype=tokens.dtype)
    whole[where] = tokens
    return whole


def _sizes(grids: mx.array, unit: int) -> list[int]:
    """Return how many cells each image has."""
    return [t * h * w // unit for t, h, w in grids.tolist()]


def _kept(tower: Any, grids: mx.array, keep: Keep) -> tuple[int, mx.array]:
    """Return how many patches a cell has, and the kept patches, numbered over all images."""
    unit = tower.spatial_merge_size**2
    return unit, mx.array(rows_of(numbered(keep, _sizes(grids, unit)), unit))


def _ends(keep: Keep, unit: int) -> mx.array:
    """Return where the kept patches of each image begin and end: int32 [images + 1]."""
    return mx.array(np.cumsum([0, *(len(cells) * unit for cells in keep)], dtype=np.int32))
