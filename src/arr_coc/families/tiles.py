"""Tiles of a picture [n, 3, s, s], rows first: their arrangement, and their placeholders in a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from arr_coc.seam.assembly import Grid, VisualFeatures, handing_back

MATCHED_PX = 64  # px a side at which tiles are compared with an overview


def arrangement(tiles: Tensor, whole: Tensor) -> tuple[int, int]:
    """Return the rows and columns in which tiles [n, 3, s, s] make up the picture that an overview [3, s, s]
    shows.

    Processors don't tell the arrangement. Of those that fit equally, as of a blank page, the squarest.
    """
    count = len(tiles)
    shapes = [(rows, count // rows) for rows in range(1, count + 1) if count % rows == 0]
    side = min(tiles.shape[-1], MATCHED_PX)
    small = F.interpolate(tiles.float(), (side, side), mode="area")
    view = F.interpolate(whole[None].float(), (side, side), mode="area")

    def misfit(shape: tuple[int, int]) -> tuple[float, int]:
        picture = F.interpolate(joined_tiles(small, *shape)[None], (side, side), mode="area")
        return round(float((picture - view).abs().mean()), 6), abs(shape[0] - shape[1])

    return min(shapes, key=misfit)


def arrangements(views: Tensor, numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Per image the rows and columns of its tiles: `numbers` of the views [n, 3, s, s], the overview last."""
    images = views.split(list(numbers))
    return [(1, 1) if len(own) == 1 else arrangement(own[:-1], own[-1]) for own in images]


def joined_tiles(tiles: Tensor, rows: int, columns: int) -> Tensor:
    """Return the picture [3, rows * s, columns * s] of tiles [rows * columns, 3, s, s]."""
    side = tiles.shape[-1]
    grid = tiles.unflatten(0, (rows, columns))  # (rows, columns, 3, s, s)
    return grid.permute(2, 0, 3, 1, 4).reshape(3, rows * side, columns * side)


def raster(rows: int, columns: int, side: int) -> Tensor:
    """Per cell of the picture its place among the tokens of its tiles, `side` cells wide: long [cells]."""
    places = torch.arange(rows * columns * side * side).view(rows, columns, side, side)
    return places.transpose(1, 2).reshape(-1)  # (tile row, cell row, tile column, cell column)


def encode_views(
    encode: Callable[[Tensor], Any], tokens: Tensor, unit: int, counts: list[int], grids: list[Grid]
) -> VisualFeatures:
    """Encode the views that hold some tokens, and returns the features of these tokens.

    `encode` takes numbers of views, long [m]; `tokens` long [K] are numbered over all views of `unit` tokens
    each; `counts` of them belong to each image.
    """
    chosen, place = (tokens // unit).unique(return_inverse=True)  # views; of each token its view's place
    output = encode(chosen)
    encoded, *levels = (
        list(torch.cat(list(level))[place * unit + tokens % unit].split(counts))
        for level in (output.pooler_output, *(getattr(output, "deepstack_features", None) or []))
    )
    packed = isinstance(output.pooler_output, Tensor)
    return VisualFeatures(encoded, levels, grids, [], handing_back(output), packed)


# ---- placeholders -------------------------------------------------------------------------------------


def run_spans(mask: Tensor) -> list[tuple[int, int]]:
    """Return where the unbroken runs of placeholders of one prompt begin and end: bool [S] -> one pair
    each.
    """
    steps = F.pad(mask.int(), (1, 1)).diff()  # 1 where a run begins, -1 behind its end
    starts, ends = ((steps == step).nonzero().flatten().tolist() for step in (1, -1))
    return list(zip(starts, ends, strict=True))


def placeholder_runs(mask: Tensor) -> list[int]:
    """Return the lengths of the unbroken runs of placeholders, row by row: bool [B, S] -> one number each."""
    return [end - start for row in mask for start, end in run_spans(row)]


def placeholder_groups(mask: Tensor) -> list[int]:
    """Return each image's number of placeholders, from bool [B, S]; runs one token apart are one image."""
    groups: list[int] = []
    for row in mask:
        last = None
        for start, end in run_spans(row):
            if last is not None and start == last + 1:
                groups[-1] += end - start
            else:
                groups.append(end - start)
            last = end
    return groups


def tokens_before_runs(input_ids: Tensor, placeholder: int) -> list[list[int]]:
    """Return the token before each unbroken run of placeholders, row by row: long [B, S] -> one list a
    row.
    """
    return [[int(ids[start - 1]) for start, _ in run_spans(ids == placeholder)] for ids in input_ids]


def numbers_by_last(input_ids: Tensor, placeholder: int) -> list[int]:
    """Views of each image, where the last follows a token of its own (that before a prompt's last run)."""
    numbers = []
    for before in tokens_before_runs(input_ids, placeholder):
        ends = [number + 1 for number, token in enumerate(before) if token == before[-1]]
        numbers += [end - start for start, end in pairwise([0, *ends])]
    return numbers


def numbers_by_first(input_ids: Tensor, placeholder: int) -> list[int]:
    """Views of each image, where the first follows a token of its own (that before a prompt's first run)."""
    numbers = []
    for before in tokens_before_runs(input_ids, placeholder):
        starts = [number for number, token in enumerate(before) if token == before[0]]
        numbers += [end - start for start, end in pairwise([*starts, len(before)])]
    return numbers


def rows_and_columns(spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the rows and columns of tiles, given their spans: more than two tokens between two tiles end a
    row.

    A ValueError for rows of different lengths, or tiles of different numbers of cells.
    """
    breaks = [i + 1 for i, (one, next_one) in enumerate(pairwise(spans)) if next_one[0] - one[1] > 2]
    rows, columns = len(breaks) + 1, [*breaks, len(spans)][0]
    if rows * columns != len(spans) or len({end - start for start, end in spans}) != 1:
        raise ValueError(f"{len(spans)} tiles make no raster; pass the processor's own input_ids")
    return rows, columns
