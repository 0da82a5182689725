"""The processor of a wrapped model: MLX-VLM's own, whose prompts come out without the dropped columns.

A server and `batch_generate` need prompts that are short from the start. What was kept travels in the pixels:
one value more for each patch says whether it is kept, and how, so that every key by which MLX-VLM caches a
prompt with its pictures says it, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from arr_coc_mlx.columns import images_of_rows, kept_columns

DROPPED, PRUNED, ENCODED_ALONE = 0.0, 1.0, 2.0
"""Marks of a patch: not kept; kept after all are encoded; kept, and encoded with the kept ones alone."""


class Processor:
    """Stands before a processor: all but its call is the processor's own.

    Args:
        model: a `WrappedModel`, which chooses.

    Attributes:
        stock: the processor.
    """

    def __init__(self, model: Any) -> None:
        self._model, self.stock = model, model.stock_processor
        self.__signature__ = inspect.signature(self.stock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stock, name)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return what the processor makes of prompts and images, shortened by the model's mode and budget."""
        inputs = dict(self.stock(*args, **kwargs))
        if inputs.get("pixel_values") is None or not self._model.chooses:
            return inputs
        return shortened(self._model, inputs)[0]


def shortened(model: Any, inputs: Mapping[str, Any], **how: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return inputs without the dropped columns, and a `Choice` for each image; `how`: of `choices`."""
    ids, mask = np.array(inputs["input_ids"]), np.array(inputs["attention_mask"])
    rows = [row[own.astype(bool)] for row, own in zip(ids, mask, strict=True)]
    choices, mark = model.choices(rows, inputs["pixel_values"], inputs["image_grid_thw"], **how)
    token, sizes = model.image_token, [choice.allocation.total for choice in choices]
    keep = [choice.keep for choice in choices]
    images = images_of_rows(rows, token, sizes)
    short = [
        row[kept_columns(row, token, [sizes[i] for i in own], [keep[i] for i in own])]
        for row, own in zip(rows, images, strict=True)
    ]
    fill = int(ids[~mask.astype(bool)][0]) if (mask == 0).any() else 0
    columns, own = left_padded(short, fill)
    # Of numpy arrays: a server makes prompts in one thread and reads them in another, and an array that MLX
    # still has to compute belongs to the thread that asked for it.
    pixels = marked(np.array(mx.array(inputs["pixel_values"]).astype(mx.float32)), keep, sizes, mark)
    return {
        **inputs,
        "input_ids": mx.array(columns),
        "attention_mask": mx.array(own),
        "pixel_values": mx.array(pixels),
    }, choices


def left_padded(rows: Sequence[np.ndarray], fill: int) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts of different lengths as one array [B, L], and which of its columns are theirs."""
    longest = max(map(len, rows))
    ids = np.full((len(rows), longest), fill)
    mask = np.zeros((len(rows), longest), dtype=np.int32)
    for i, row in enumerate(rows):
        ids[i, longest - len(row) :], mask[i, longest - len(row) :] = row, 1
    return ids, mask


def marked(pixels: np.ndarray, keep: Sequence[np.ndarray], sizes: Sequence[int], mark: float) -> np.ndarray:
    """Return patches [P, values + 1]: with a mark each, `mark` for those of kept cells, else `DROPPED`."""
    marks = np.concatenate([_marks(size, cells, mark) for size, cells in zip(sizes, keep, strict=True)])
    return np.concatenate([pixels, np.repeat(marks, len(pixels) // len(marks))[:, None]], axis=1)


def unmarked(pixels: mx.array, sizes: Sequence[int], unit: int) -> tuple[mx.array, list[np.ndarray], float]:
    """Return patches without their marks, the kept cells of each image, and the mark of these."""
    marks = np.array(pixels[:, -1].astype(mx.float32)).reshape(-1, unit)[:, 0]
    parts = np.split(marks, np.cumsum(sizes)[:-1])
    return pixels[:, :-1], [np.flatnonzero(part > DROPPED) for part in parts], float(marks.max())


def _marks(size: int, cells: np.ndarray, mark: float) -> np.ndarray:
    marks = np.full(size, DROPPED, dtype=np.float32)
    marks[cells] = mark
    return marks
