"""Compaction: the columns of a prompt that are kept, gathered from every tensor over the prompt.

`gather_columns(x, columns)[..., j] = x[..., columns[j]]`, so a kept token keeps its id, its mask, its label
and its original position. Shapes: prompts are [B, S], compacted prompts [B, S'].

An image may get gestalt tokens, which are not in the original prompt: they come before its first token, and
their positions are in the coordinates of its cells.

Rows that keep different numbers of tokens are padded on the left, since decoding continues on the right.
These are functions of tensors alone; nothing here needs a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from arr_coc.seam.features import KIND_NAMES, Grid, Layout

Span = tuple[int, Tensor]
"""The place of one image in a batch of prompts: its row, and the columns [n] of its visual tokens."""

PAD = -1
"""The column index that stands for padding."""

GESTALT = -2
"""The column index that stands for a gestalt token."""

CROP = -3
"""The column index that stands for a cell of a crop."""


def image_spans(is_image: Tensor, counts: Sequence[int]) -> list[Span]:
    """Divide the image columns of a batch among its images, which come in order of appearance.

    Args:
        is_image: bool [B, S], true where a visual token stands.
        counts: visual tokens of each image, in order of appearance (row by row, left to right).

    Returns:
        One (row, columns [n]) per image.

    Raises:
        ValueError: the prompt holds another number of visual tokens than the images have.
    """
    spans: list[Span] = []
    pending = list(counts)
    for row, mask in enumerate(is_image):
        columns = mask.nonzero().flatten()
        while len(columns) and pending and pending[0] <= len(columns):
            count = pending.pop(0)
            spans.append((row, columns[:count]))
            columns = columns[count:]
        if len(columns):
            break
    if pending or int(is_image.sum()) != sum(counts):
        raise ValueError(
            f"the prompt has {int(is_image.sum())} image tokens in {len(is_image)} row(s) but its images "
            f"make {list(counts)}; pass the processor's own input_ids, not truncated, with the same images"
        )
    return spans


def kept_columns(attention_mask: Tensor, spans: Sequence[Span], keep: Sequence[Tensor]) -> Tensor:
    """The mask of kept columns: every attended text column, and the kept visual tokens of each image.

    Args:
        attention_mask: [B, S], 0 for padding.
        spans: one (row, columns [n_i]) per image.
        keep: per image the indices [K_i] in 0..n_i-1 of the visual tokens to keep.

    Returns:
        bool [B, S].
    """
    kept = attention_mask.bool().clone()
    for (row, columns), indices in zip(spans, keep, strict=True):
        kept[row, columns] = False
        kept[row, columns[indices]] = True
    return kept


def gestalt_columns(kept: Tensor, spans: Sequence[Span], counts: Sequence[int]) -> Tensor:
    """The number of gestalt tokens to insert before each column: long [B, S].

    Args:
        kept: bool [B, S].
        spans: one (row, columns [n_i]) per image.
        counts: gestalt tokens of each image.
    """
    ahead = torch.zeros_like(kept, dtype=torch.long)
    for (row, columns), count in zip(spans, counts, strict=True):
        ahead[row, columns[0]] = count
    return ahead


def compact_columns(kept: Tensor, spare: int = 0, ahead: Tensor | None = None) -> Tensor:
    """The indices of each row's kept columns in order, padded on the left to one width.

    Args:
        kept: bool [B, S].
        spare: padding columns to add on the left of even the longest row (some attention kernels need a
            mask with a zero in it, see `FamilyAdapter.needs_spare_column`).
        ahead: long [B, S], gestalt tokens to insert before each column, kept or not; None: none.

    Returns:
        Long [B, S'], S' = the longest row + spare, `PAD` where a row is padded, `GESTALT` for gestalt tokens.
    """
    ends = (kept if ahead is None else kept + ahead).cumsum(dim=1)  # (B, S), each column's end
    lengths = ends[:, -1:]
    width = int(lengths.max()) + spare
    padding = torch.arange(width, device=kept.device) < width - lengths  # (B, S')
    columns = torch.full_like(padding, GESTALT, dtype=torch.long).masked_fill(padding, PAD)
    row, column = kept.nonzero(as_tuple=True)
    columns[row, (ends + width - lengths)[row, column] - 1] = column
    return columns


def in_order(indices: Tensor, cells: Tensor, order: Tensor) -> Tensor:
    """The kept tokens of an image with its cells in another order; tokens that are no cell keep their places.

    Args:
        indices: long [K], kept tokens, ascending.
        cells: long [N], which token each cell is.
        order: long, the kept cells, each once, in the order that is wanted.

    Raises:
        ValueError: the order holds other cells than those that are kept.
    """
    wanted = cells[order.to(cells.device)].to(indices.device)
    places = torch.isin(indices, cells.to(indices.device))
    if not torch.equal(wanted.sort().values, indices[places]):
        raise ValueError(
            f"an order of {len(wanted)} cells is not of the {int(places.sum())} kept ones; name each once"
        )
    return indices.masked_scatter(places, wanted)


def gather_columns(values: Tensor, columns: Tensor, fill: int, gestalt: int | None = None) -> Tensor:
    """Gather the kept columns of a tensor over prompts.

    Args:
        values: [..., B, S] with any leading dimensions.
        columns: long [B, S'], `PAD` for padding, `GESTALT` for gestalt tokens, `CROP` for cells of crops.
        fill: value for padding.
        gestalt: value for gestalt tokens and cells of crops; None: `fill`.

    Returns:
        [..., B, S'].
    """
    index = columns.clamp_min(0).expand(*values.shape[:-2], *columns.shape)
    gathered = values.gather(-1, index).masked_fill(columns < 0, fill)
    return gathered if gestalt is None else gathered.masked_fill(columns < PAD, gestalt)


def moved_columns(named: Any, columns: Tensor, length: int, by_row: bool) -> Tensor:
    """Where columns of whole prompts stand in the compacted ones, as `logits_to_keep` names them.

    Args:
        named: numbers of columns, also from the end, a mask or a slice, the same for all rows; or those of
            each row, numbers [B, n] or a mask [B, S].
        columns: long [B, S'], the record of a compaction.
        length: S of the whole prompts.
        by_row: whether the model takes other columns for each row.

    Returns:
        Long [n] where they are the same in each row, else long [B, n]; of a mask [B, S] a mask [B, S'].

    Raises:
        ValueError: no columns of the prompt, one that is dropped, or one that stands at different places in
            the rows, where the model takes no others for each.
    """
    rows = len(columns)
    try:
        if isinstance(named, Tensor) and named.ndim == 2:
            named = named.to(columns.device)
            if named.dtype == torch.bool and named.shape == (rows, length):
                kept = gather_columns(named, columns, fill=0)
                _refuse_lost(kept.sum(1) < named.sum(1), kept)
                return kept
            wanted = torch.arange(length, device=columns.device)[named].expand(rows, -1)
        else:
            index = named if isinstance(named, Tensor | slice) else torch.as_tensor(named)
            wanted = torch.arange(length, device=columns.device)[index].expand(1, -1).expand(rows, -1)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"these are no columns of {rows} prompts of {length} tokens") from error
    matches = columns[:, None] == wanted[..., None]  # (B, n, S')
    _refuse_lost(~matches.any(-1), wanted)
    places = matches.int().argmax(-1)
    if bool((places == places[:1]).all()):
        return places[0]
    if not by_row:
        raise ValueError("these columns stand elsewhere in each row once tokens are dropped: pass one row")
    return places


def _refuse_lost(lost: Tensor, wanted: Tensor) -> None:
    """Raise a ValueError where some of the columns that were asked for are not kept."""
    if bool(lost.any()):
        which = wanted[lost].unique().tolist() if wanted.dtype != torch.bool else "of the mask"
        raise ValueError(f"columns {which} are dropped or padding: name columns of text")


def gestalt_positions(
    positions: Tensor, spans: Sequence[Span], layout: Layout, grids: Sequence[Grid]
) -> Tensor:
    """Position ids of gestalt tokens, in the coordinates of the cells that they cover.

    Row i of h coarse rows covers H / h of the H fine rows; its middle is y = (i + 0.5) * H / h - 0.5, and
    likewise for columns, in each frame by itself. The position is that of the fine grid at the middle, linear
    between cells: in three-row positions the middle plus the image's offset, in plain ones the mean over the
    tokens covered.

    Args:
        positions: [..., B, S] of the whole prompt.
        spans: one (row, columns [n_i]) per image.
        layout: grids and cells of the images' tokens.
        grids: per image the gestalt's grid (T, h, w).

    Returns:
        [..., G] for all images' gestalt tokens, raster order; float32, or in the dtype of `positions` if all
        are whole numbers.
    """
    parts = []
    for (row, columns), cells, fine, coarse in zip(spans, layout.cells, layout.grids, grids, strict=True):
        own = positions[..., row, columns[cells]]  # (..., N)
        first = own[..., :1]  # subtracted, for exact fractions far into a prompt
        if 0 in coarse:  # an image without gestalt tokens
            parts.append(first[..., :0].float())
            continue
        lattice = (own - first).float().reshape(1, -1, *fine[1:])  # (1, ... * T, H, W)
        middles = F.interpolate(lattice, size=coarse[1:], mode="bilinear", align_corners=False)
        parts.append(first + middles.reshape(*own.shape[:-1], -1))
    joined = torch.cat(parts, dim=-1)
    return joined.to(positions.dtype) if bool((joined == joined.round()).all()) else joined


def consecutive_positions(attention_mask: Tensor) -> Tensor:
    """Attended tokens counted from 0 along each row, 0 for padding: [B, S] -> long [B, S]."""
    return (attention_mask.long().cumsum(-1) - 1).clamp_min(0) * attention_mask.long()


def continued_prompt(kwargs: Mapping[str, Any], ids: Sequence[int], kind: int = 0) -> dict[str, Any]:
    """A compacted prompt of one row with further tokens of text behind it, of this kind."""
    more, longer = len(ids), dict(kwargs)
    new = kwargs["input_ids"].new_tensor([list(ids)])
    longer["input_ids"] = torch.cat([kwargs["input_ids"], new], 1)
    longer["attention_mask"] = F.pad(kwargs["attention_mask"], (0, more), value=1)
    steps = torch.arange(1, more + 1, device=new.device)
    positions = kwargs["position_ids"]
    longer["position_ids"] = torch.cat([positions, positions[..., -1:] + steps.to(positions)], -1)
    for name in KIND_NAMES:
        if kwargs.get(name) is not None:
            longer[name] = F.pad(kwargs[name], (0, more), value=kind)
    return longer
