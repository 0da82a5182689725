"""Relevance maps in files, as evidence of your own questions: grey PNGs or .npz arrays [H, W]."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from arr_coc.data.record import check_inside, check_name, is_file
from arr_coc.files.atomic import one_line
from arr_coc.files.validation import short

MAX_SIDE = 4096  # the longest side of a map in a file
FINEST = 256  # the longest side of a map in memory: more cells than any model has
NAME = "map"  # the array of an .npz that has several
# Modes of a PNG, and the greatest value of each.
_GREY = {"1": 1.0, "L": 255.0, "I;16": 65535.0, "I;16B": 65535.0, "I;16L": 65535.0, "I": 65535.0}


def find_map(folder: Path, name: str, where: str) -> Path:
    """Return the file of the map called `name` in a data set's folder; a ValueError if it is outside or
    missing.
    """
    check_name(name, where, "map")
    if not is_file(folder / name):
        raise ValueError(f"{where}: map {short(name)} is not in {str(folder)!r}: put it there")
    check_inside(folder / name, folder, f"{where}: map {short(name)}")
    return folder / name


def read_map(path: Path, where: str) -> np.ndarray:
    """Return a relevance map over a whole upright image: float32 [H, W] in [0, 1], at most `FINEST` a side.

    The file is a PNG of grey values or an .npz with one array [H, W] (several: the one called `map`), of any
    grid. Values are divided by the greatest; all zeros say that nothing in the image answers. A ValueError if
    the file is missing, damaged, of another kind or too large, or its values are no map.
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
    except Exception as error:  # a damaged file makes a decoder raise anything
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
            raise ValueError(f"{place} is too large: use at most {MAX_SIDE} values a side") from error
    with picture:
        _check_shape(picture.size[::-1], place)
        if picture.mode not in _GREY:
            raise ValueError(f"{place} has colours (mode {picture.mode}): write one grey value a place")
        return np.asarray(picture, dtype=np.float64) / _GREY[picture.mode]


def _from_npz(path: Path, place: str) -> np.ndarray:
    """Return the array of an archive; its header is checked first, so a small file can't ask for much
    memory.
    """
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
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(file)
        return readers[version](file)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{place} holds no array ({one_line(error)}): save it by numpy.savez") from error


def _check_shape(shape: tuple[int, ...], place: str) -> None:
    if len(shape) != 2 or not all(1 <= side <= MAX_SIDE for side in shape):
        raise ValueError(f"{place} has shape {list(shape)}: give [H, W] of 1 to {MAX_SIDE} each")


def _reduced(values: np.ndarray) -> np.ndarray:
    """Return a map of at most `FINEST` values a side, each the greatest of the part that it stands for."""
    for axis in (0, 1):
        side = values.shape[axis]
        if side > FINEST:
            starts = np.arange(FINEST) * side // FINEST
            values = np.maximum.reduceat(values, starts, axis=axis)
    return np.ascontiguousarray(values)
