"""Columns of a prompt: which of them belong to which image, and which stay when cells are dropped.

A prompt has one column per token and, for each image, as many columns in a row as the image has cells. All
functions take the ids of one prompt without padding, int [L].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Keep = Sequence[np.ndarray]
"""Per image the kept cells, int [K], rising raster indices."""


def image_columns(ids: np.ndarray, token: int, sizes: Sequence[int]) -> list[np.ndarray]:
    """Return the columns [n_i] of each image; `sizes` are the n_i.

    Raises:
        ValueError: the prompt has another number of image tokens.
    """
    columns = np.flatnonzero(ids == token)
    if len(columns) != sum(sizes):
        raise ValueError(
            f"the prompt has {len(columns)} image tokens and the images have {sum(sizes)} cells: pass all "
            "that the model's own processor makes of a prompt and its images, unchanged"
        )
    return np.split(columns, np.cumsum(sizes)[:-1]) if len(sizes) else []


def kept_columns(ids: np.ndarray, token: int, sizes: Sequence[int], keep: Keep) -> np.ndarray:
    """Return the columns that stay, int [L - dropped], rising: all text, and the kept cells of each image."""
    stays = ids != token
    for columns, cells in zip(image_columns(ids, token, sizes), keep, strict=True):
        stays[columns[cells]] = True
    return np.flatnonzero(stays)


def expanded(ids: np.ndarray, token: int, sizes: Sequence[int], keep: Keep) -> np.ndarray:
    """Return the whole prompt of one whose dropped columns are gone: `ids[kept_columns(ids, ...)]` undone."""
    repeats = np.ones(len(ids), dtype=int)
    counts = [len(cells) for cells in keep]
    for columns, size in zip(image_columns(ids, token, counts), sizes, strict=True):
        repeats[columns[0]] += size - len(columns)
    return np.repeat(ids, repeats)


def images_of_rows(rows: Sequence[np.ndarray], token: int, sizes: Sequence[int]) -> list[range]:
    """Return for each prompt of a batch the numbers of its images; `sizes` are the tokens of all images.

    Raises:
        ValueError: the images of the batch don't fill the prompts' image tokens.
    """
    found, image = [], 0
    for ids in rows:
        first, left = image, int((ids == token).sum())
        while left > 0 and image < len(sizes):
            left -= sizes[image]
            image += 1
        if left:
            raise ValueError(
                f"the images of {list(sizes)} tokens don't fill the image tokens of the {len(rows)} prompts: "
                "pass all that the model's own processor makes of prompts and their images, unchanged"
            )
        found.append(range(first, image))
    return found
