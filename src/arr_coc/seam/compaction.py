"""Compaction: the columns of a prompt that stay, gathered from every tensor that has columns.

Law: `gather_columns(x, columns)[..., j] = x[..., columns[j]]`, so a kept token keeps its id, its mask,
its label and its original position. Shapes: prompts are [B, S], the compacted prompt is [B, S'], S' <=
S.

Rows that keep different numbers are padded on the left (decoding goes on at the right end).
Pure tensors; knows nothing of models, images or scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Span = tuple[int, Tensor]
"""Where one image stands in a batch of prompts: its row, and the columns of its visual tokens [n], in
order."""

PAD = -1
"""The column index that stands for padding."""


def image_spans(is_image: Tensor, counts: Sequence[int]) -> list[Span]:
    """Share out the image columns of a batch among its images, which come in order of appearance.

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
            f"the prompt has {int(is_image.sum())} image tokens in {len(is_image)} row(s) but its "
            "images make "
            f"{list(counts)}; pass the processor's own input_ids, not truncated, with the same images"
        )
    return spans


def kept_columns(attention_mask: Tensor, spans: Sequence[Span], keep: Sequence[Tensor]) -> Tensor:
    """Mark the columns that stay: every attended text column, and the kept visual tokens of each image.

    Args:
        attention_mask: [B, S], 0 for padding.
        spans: one (row, columns [n_i]) per image.
        keep: per image the indices [K_i] in 0..n_i-1 of the visual tokens that stay.

    Returns:
        bool [B, S].
    """
    kept = attention_mask.bool().clone()
    for (row, columns), indices in zip(spans, keep, strict=True):
        kept[row, columns] = False
        kept[row, columns[indices]] = True
    return kept


def compact_columns(kept: Tensor, spare: int = 0) -> Tensor:
    """List the kept columns of each row in their order, padded on the left to one width.

    Args:
        kept: bool [B, S].
        spare: padding columns to add on the left of even the longest row (some attention kernels need a
            mask with a zero in it, see `FamilyAdapter.needs_spare_column`).

    Returns:
        Long [B, S'], S' = the longest row + spare, `PAD` where a row is padded.
    """
    lengths = kept.sum(dim=1)
    width = int(lengths.max()) + spare
    assert width <= kept.shape[1], "spare padding is only asked for when something is dropped"
    order = kept.to(torch.int8).argsort(dim=1, stable=True)[
        :, -width:
    ]  # dropped columns first, both in order
    padding = torch.arange(width, device=kept.device) < width - lengths[:, None]
    return order.masked_fill(padding, PAD)  # (B, S')


def gather_columns(values: Tensor, columns: Tensor, fill: int) -> Tensor:
    """Gather kept columns from a tensor over prompts.

    Args:
        values: [..., B, S] with any leading dimensions.
        columns: long [B, S'], `PAD` for padding.
        fill: what padding gets.

    Returns:
        [..., B, S'].
    """
    index = columns.clamp_min(0).expand(*values.shape[:-2], *columns.shape)
    return values.gather(-1, index).masked_fill(columns == PAD, fill)


def consecutive_positions(attention_mask: Tensor) -> Tensor:
    """Count attended tokens from 0 along each row, padding gets 0: [B, S] -> long [B, S]."""
    return (attention_mask.long().cumsum(-1) - 1).clamp_min(0) * attention_mask.long()
