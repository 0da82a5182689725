"""The result file of an evaluation: JSON lines, a header first, then one record per question.

    read_results(path) -> (header, records);  write_results(path, header, records)
    append_results(path, records)             after the last whole line, which is where a killed run goes on
    encode_kept(indices, total) -> text;      decode_kept(text, total) -> bool [N]

A record has at least `id` (unique), `image` and `score` (by method, 0 to 1), and the header the kind of each
method (`kinds`); summaries, tables and plots are computed from them alone. Laws: what is written is read back
equal; a line cut off by a kill is as if it had never been written; the same records give the same bytes,
compressed (`.gz`) or not.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from arr_coc.store.validation import validated

Record = dict[str, Any]


class _Line(BaseModel):
    """What every record has; methods and whatever else was measured stand beside it."""

    model_config = ConfigDict(strict=True)
    id: str
    image: str
    score: dict[str, Annotated[float, Field(ge=0, le=1 + 1e-9, allow_inf_nan=False)]] = Field(min_length=1)


def read_results(path: str | Path) -> tuple[dict[str, Any], list[Record]]:
    """The header and the records of a result file, plain or `.gz`.

    A last line without its end that is no whole JSON is what a killed run leaves; it is dropped.

    Raises:
        ValueError: the file can't be read or has no header, or a line is no record or repeats an id; names
            file and line.
    """
    path = Path(path)
    lines = _whole(_read(path)).removesuffix(b"\n").split(b"\n")
    if not lines[0]:
        raise ValueError(f"{path} has no header line: it is no result file, or its run was killed at once")
    header = _object(lines[0], f"{path}, line 1").get("header")
    if not isinstance(header, dict):
        raise ValueError(f'{path}, line 1 is no {{"header": {{...}}}}: give the .jsonl of an evaluation')
    records: list[Record] = []
    places: dict[str, int] = {}
    for number, line in enumerate(lines[1:], 2):
        where = f"{path}, line {number}"
        record = _object(line, where)
        validated(_Line, record, where)
        first = places.setdefault(record["id"], number)
        if first != number:
            raise ValueError(f"{where} repeats the id {record['id']!r} of line {first}: remove one of them")
        records.append(record)
    return header, records


def write_results(path: str | Path, header: dict[str, Any], records: Iterable[Record] = ()) -> None:
    """Write a whole result file, compressed where the name ends in `.gz`; an older one is replaced."""
    path = Path(path)
    content = "".join(_line(record) for record in ({"header": header}, *records)).encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # no date inside: equal records, equal bytes
    path.write_bytes(content)


def append_results(path: str | Path, records: Iterable[Record]) -> None:
    """Add records to a plain result file; the cut-off line that a killed run left is removed first.

    Raises:
        ValueError: the file is compressed, missing or can't be written.
    """
    path = Path(path)
    if path.suffix == ".gz":
        raise ValueError(f"{path} is compressed and can't grow: run into a .jsonl and compress it afterwards")
    text = "".join(_line(record) for record in records).encode()
    try:
        with path.open("r+b") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 1))
            if size and file.read() != b"\n":  # only then is it worth reading all of it
                file.seek(0)
                whole = _whole(file.read())
                file.truncate(len(whole))
                text = text if whole.endswith(b"\n") or not whole else b"\n" + text
            file.seek(0, 2)
            file.write(text)
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error.strerror}): write_results makes it") from error


def join_results(paths: Sequence[str | Path]) -> tuple[dict[str, Any], list[Record]]:
    """The files of a run that was shared out in parts, as the one file of the whole run.

    Args:
        paths: one result file per part, in any order.

    Raises:
        ValueError: they are not the parts of one run, each once and complete.
    """
    files = [read_results(path) for path in paths]
    files.sort(key=lambda pair: pair[0].get("part", [1, 1]))
    first = files[0][0]
    parts = [header.get("part", [1, 1]) for header, _ in files]
    if parts != [[i, len(files)] for i in range(1, len(files) + 1)]:
        raise ValueError(f"{', '.join(map(str, paths))} are parts {parts}: give each part of one run once")
    for path, (header, _) in zip(paths, files, strict=True):
        for name in {**first, **header}.keys() - {"part", "command", "machine", "kinds"}:
            if header.get(name) != first.get(name):
                raise ValueError(f"{path} is of another run: its {name} differs; give the parts of one run")
    images = [[list(group) for _, group in groupby(rows, lambda row: row["image"])] for _, rows in files]
    turns = zip_longest(*images, fillvalue=[])
    records = [record for turn in turns for image in turn for record in image]
    if len(records) != first.get("questions", len(records)):
        raise ValueError(
            f"the parts have {len(records)} of {first['questions']} questions: run each to its end first"
        )
    return {**first, "part": [1, 1]}, records


def encode_kept(keep: Any, total: int) -> str:
    """The kept cells of one image as text: base64 of the bits of a mask, 172 letters for 1024 cells.

    Args:
        keep: indices of the kept cells, [K], in any order: a list, an array or a tensor.
        total: number N of cells.

    Raises:
        ValueError: an index is not a whole number in 0..N-1, or comes twice.
    """
    tolist = getattr(keep, "tolist", None)
    indices = np.asarray(keep if tolist is None else tolist())
    if indices.size and (indices.ndim != 1 or indices.dtype.kind != "i"):
        raise ValueError(
            f"kept cells are {indices.dtype} {list(indices.shape)}: pass indices, one list of them"
        )
    mask = np.zeros(total, dtype=bool)
    if indices.size:
        wrong = indices[(indices < 0) | (indices >= total)]
        if len(wrong):
            raise ValueError(f"kept cell {wrong[0]} is not among {total}: indices go from 0 to {total - 1}")
        mask[indices] = True
    if mask.sum() != indices.size:
        raise ValueError(f"{indices.size} kept cells are only {mask.sum()} different ones: name each once")
    return base64.b64encode(np.packbits(mask).tobytes()).decode()


def decode_kept(text: str, total: int) -> np.ndarray:
    """The mask that `encode_kept` wrote, bool [N].

    Raises:
        ValueError: it is not base64, or not a mask of `total` cells.
    """
    try:
        packed = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"kept cells {text[:40]!r} are not base64: evaluate again") from error
    bits = np.unpackbits(packed).astype(bool)
    if len(packed) != math.ceil(total / 8) or bits[total:].any():
        raise ValueError(f"{len(bits)} bits are no mask of {total} cells: `total` is another image's")
    return bits[:total]


def _line(record: Record) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is no whole gzip file ({error}): copy or compress it again") from error
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}): give the .jsonl of an evaluation"
        ) from error


def _whole(content: bytes) -> bytes:
    """`content` to the end of its last whole line, which may lack its line feed."""
    start = content.rfind(b"\n") + 1
    try:
        json.loads(content[start:])
    except (ValueError, RecursionError):  # nested beyond reason, too
        return content[:start]
    return content


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ValueError(f"{where} is not JSON ({error}): remove the line or evaluate again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {str(value)[:40]!r} and no object: remove the line or evaluate again")
    return value
