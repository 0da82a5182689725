"""Evidence cells: which cells of a grid show the part of an image that answers a question.

    evidence_cells(((3, 4, 90, 30),), (32, 32), (1024, 1024)) -> bool [32, 32]
    map_cells(relevance, (32, 32))                            -> float [32, 32]

The one rule for targets of training and for measuring recall.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.data.record import Box, check_inside, check_name, is_file
from arr_coc.files.atomic import one_line
from arr_coc.files.saved import short

VISIBLE = 6 / 32
"""Share of a cell's side that a box has to cover, each way, for the cell to show a part that can be seen."""
MARKED = 0.5  # a cell of a relevance map above this is evidence


def evidence_cells(boxes: Sequence[Box], grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Cells of which a box covers a part that can be seen, whatever the size of a cell.

    A cell counts that is covered by `VISIBLE` of its side each way, or holds all of a smaller box. A box that
    is too small for that and lies across a border belongs to the cell that holds most of it, so no box inside
    the image is lost.

    Args:
        boxes: (x0, y0, x1, y1) in px of the image; what is outside of it does not count.
        grid: (H, W) cells.
        size: (width, height) of the image in px.

    Returns:
        Bool [H, W].
    """
    mask = torch.zeros(grid, dtype=torch.bool)
    for x0, y0, x1, y1 in boxes:
        mask |= _covered(y0, y1, grid[0], size[1])[:, None] & _covered(x0, x1, grid[1], size[0])
    return mask


def _covered(low: float, high: float, cells: int, length: int) -> Tensor:
    """Which of `cells` equal parts of 0..length an interval covers: bool [cells]."""
    low, high = max(0.0, low), min(float(length), high)
    if high <= low:
        return torch.zeros(cells, dtype=torch.bool)
    edges = torch.arange(cells + 1, dtype=torch.float64) * length / cells
    overlap = edges[1:].clamp(max=high) - edges[:-1].clamp(min=low)
    almost = 1 - 1e-9  # a scaled box is off by a rounding error
    enough = overlap >= min(VISIBLE * length / cells, high - low) * almost
    if not enough.any():
        enough[(overlap >= overlap.max() * almost).nonzero()[0]] = True
    return enough


def map_cells(relevance: Tensor, grid: tuple[int, int]) -> Tensor:
    """A relevance map on a model's cells: each has the greatest value that lies over it.

    Args:
        relevance: [h, w] over the whole image, of any grid.
        grid: (H, W) cells.

    Returns:
        Float32 [H, W].
    """
    return F.adaptive_max_pool2d(relevance.float()[None], grid)[0]


def all_evidence(
    boxes: Sequence[Box], relevance: Tensor | None, grid: tuple[int, int], size: tuple[int, int]
) -> Tensor:
    """The cells of boxes and those where a relevance map is above `MARKED`: bool [H, W].

    Args:
        boxes: (x0, y0, x1, y1) in px of the image.
        relevance: [h, w] in [0, 1] over the whole image, of any grid; None: there is none.
        grid: (H, W) cells.
        size: (width, height) of the image in px.
    """
    cells = evidence_cells(boxes, grid, size)
    return cells if relevance is None else cells | (map_cells(relevance.cpu(), grid) > MARKED)


# Relevance maps as the evidence of your own questions: what people or models marked in an image.
#
#     {"image": "a.png", "question": "Where is the crack?", "map": "a-crack.png"}    a line of
# questions.jsonl
#
# A map is a PNG of grey values or an .npz with one array [H, W] (several: the one called `map`), of any
# grid:
# it lies over the whole upright image, and a cell of a model gets the greatest value that lies over it, so a
# small thing is not averaged away. Values are at least 0 and are divided by the map's greatest; a map of
# zeros
# says that nothing in the image answers. `target=maps` teaches the values themselves, `target=boxes` and
# every
# measurement take cells above half as evidence.

MOST_SIDE = 4096  # the longest side of a map in a file
FINEST = 256
"""The longest side of a map in memory: finer ones are reduced to it, more cells than any model has."""
NAME = "map"  # the array of an .npz that has several
_GREY = {"1": 1.0, "L": 255.0, "I;16": 65535.0, "I;16B": 65535.0, "I;16L": 65535.0, "I": 65535.0}
"""Modes of a PNG, and their greatest value."""


def find_map(folder: Path, name: str, where: str) -> Path:
    """The map called `name` in a folder.

    Args:
        folder: of the data set.
        name: a relative path.
        where: file and line of the question, for messages.

    Raises:
        ValueError: the name leads out of the folder, or there is no such file.
    """
    check_name(name, where, "map")
    if not is_file(folder / name):
        raise ValueError(f"{where}: map {short(name)} is not in {str(folder)!r}: put it there")
    check_inside(folder / name, folder, f"{where}: map {short(name)}")
    return folder / name


def read_map(path: Path, where: str) -> np.ndarray:
    """A relevance map from a PNG or .npz: float32 [H, W] in [0, 1], its greatest value 1, or zeros.

    Sides above `FINEST` are reduced to it by the greatest of what lies under a value.

    Args:
        path: of the file.
        where: place of the question, for messages.

    Raises:
        ValueError: the file is missing, unreadable, damaged, of another kind or too large; or its values are
            no map: another shape than [H, W], negative, or not finite.
    """
    suffix = path.suffix.lower()
    place = f"{where}: map {path.name!r}"
    try:
        if suffix == ".png":
            values = _from_png(path, place)
        elif suffix == ".npz":
            values = _from_npz(path, place)
        else:
            raise ValueError(f"{place} is no PNG and no .npz: write one of them")
    except MemoryError:
        raise
    except Exception as error:  # damaged files make decoders raise anything, a ValueError of theirs, too
        if isinstance(error, ValueError) and str(error).startswith(place):
            raise
        raise ValueError(
            f"{place} can't be read ({one_line(error)}): it may be damaged; write it again"
        ) from error
    if not np.isfinite(values).all() or values.min() < 0:
        raise ValueError(f"{place} has values that are negative or not finite: write relevance from 0 up")
    most = float(values.max())
    return _reduced((values / most if most else values).astype(np.float32))


def _from_png(path: Path, place: str) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            picture = Image.open(path, formats=("PNG",))
        except Image.DecompressionBombWarning as error:
            raise ValueError(f"{place} is too large: use at most {MOST_SIDE} values a side") from error
    with picture:
        _check_shape(picture.size[::-1], place)
        if picture.mode not in _GREY:
            raise ValueError(f"{place} has colours (mode {picture.mode}): write one grey value a place")
        return np.asarray(picture, dtype=np.float64) / _GREY[picture.mode]


def _from_npz(path: Path, place: str) -> np.ndarray:
    """The array of an archive; its header is read first, so a small file can't ask for much memory."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        named = [name for name in names if name == f"{NAME}.npy"] or names
        if len(named) != 1:
            remedy = f"save one, or one of them as {NAME!r}"
            raise ValueError(f"{place} has {len(names)} arrays: {remedy}")
        with archive.open(named[0]) as file:
            shape, columns_first, kind = _header(file, place)
            _check_shape(shape, place)
            if kind.kind not in "fiub":
                raise ValueError(f"{place} holds {kind}: save numbers")
            count = shape[0] * shape[1]
            content = file.read(count * kind.itemsize)
    if len(content) != count * kind.itemsize:
        raise ValueError(f"{place} is cut off: write it again")
    values = np.frombuffer(content, kind).astype(np.float64)
    return values.reshape(shape[::-1]).T if columns_first else values.reshape(shape)


def _header(file: Any, place: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of the numbers of an .npy."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        return readers[version](file)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{place} holds no array ({one_line(error)}): save it by numpy.savez") from error


def _check_shape(shape: tuple[int, ...], place: str) -> None:
    if len(shape) != 2 or not all(1 <= side <= MOST_SIDE for side in shape):
        raise ValueError(f"{place} has shape {list(shape)}: give [H, W] of 1 to {MOST_SIDE} each")


def _reduced(values: np.ndarray) -> np.ndarray:
    """A map of at most `FINEST` a side: the greatest value of each of as many parts as that, or all."""
    for axis in (0, 1):
        side = values.shape[axis]
        if side > FINEST:
            starts = np.arange(FINEST) * side // FINEST
            values = np.maximum.reduceat(values, starts, axis=axis)
    return np.ascontiguousarray(values)
