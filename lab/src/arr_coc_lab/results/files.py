"""The result file of an evaluation: JSON lines, a header first, then one record per question.

A record has at least `id` (unique), `image`, and `score` (by method, 0 to 1) or `error`; the header has the
`kinds` of methods. Laws: what is written is read back equal; a line cut off by a kill does not count; equal
records give equal bytes, compressed (`.gz`) or not; files are checked on reading (`lines`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import gzip
import json
import math
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import count, groupby, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from arr_coc.files.atomic import write_atomic
from arr_coc.files.validation import parse_json, short, validated
from arr_coc_lab.results.lines import Answered, Failed, Header

Record = dict[str, Any]
ERROR = "error"  # field of a record: why its question was not asked
MAX_LINE = 2**22  # most bytes of a line; the longest of a real run has about 20,000
# A compressed file may unpack to this many times its bytes (real runs: 5 to 12), or to this many bytes.
MAX_GROWTH, SMALL = 40, 2**24
_REMEDY = "remove the line or evaluate again"


def read_results(path: str | Path) -> tuple[dict[str, Any], list[Record]]:
    """Read the header and the records of a result file, plain or `.gz`; an incomplete last line is dropped.

    Raises:
        ValueError: the file can't be read or has no header, or a line is no record or repeats an id; names
            file and line.
    """
    path = Path(path)
    lines = _lines(path)
    _, first = next(lines, (1, b"\n"))
    if not first.strip():
        raise ValueError(f"{path} has no header line: it is no result file, or its run was killed at once")
    header = _object(first, f"{path}, line 1").get("header")
    if not isinstance(header, dict):
        raise ValueError(f'{path}, line 1 is no {{"header": {{...}}}}: give the .jsonl of an evaluation')
    validated(Header, header, f"{path}, line 1")
    records: list[Record] = []
    places: dict[str, int] = {}
    for number, line in lines:
        where = f"{path}, line {number}"
        record = _object(line, where)
        validated(Failed if ERROR in record else Answered, record, where)
        earlier = places.setdefault(record["id"], number)
        if earlier != number:
            raise ValueError(
                f"{where} repeats the id {short(record['id'])} of line {earlier}: remove one of them"
            )
        records.append(record)
    return header, records


def write_results(path: str | Path, header: dict[str, Any], records: Iterable[Record] = ()) -> None:
    """Write a result file, compressed if its name ends in `.gz`; if that fails an older one is unchanged."""
    path = Path(path)
    content = "".join(_line(record) for record in ({"header": header}, *records)).encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # without a date: equal records, equal bytes
    with writing(path):
        write_atomic(content, path)


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write the .json beside a result file; ValueError if it can't be written."""
    with writing(path):
        write_atomic((json.dumps(summary, indent=1) + "\n").encode(), path)


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Turn an OSError of writing into a ValueError with a remedy."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = f"{'make room there, or ' if full else ''}choose another with --out"
        raise ValueError(f"{str(path)!r} cannot be written ({reason}): {remedy}") from error


def append_results(path: str | Path, records: Iterable[Record]) -> None:
    """Add records to a plain result file, without an incomplete last line; errors as `mend_results`."""
    path = Path(path)
    text = "".join(_line(record) for record in records).encode()
    mend_results(path)
    with writing(path), path.open("ab") as file:
        file.write(text)


def mend_results(path: str | Path) -> bool:
    """Remove the incomplete last line that a killed run left in a plain result file; returns whether it did.

    Raises ValueError if the file is compressed, missing or can't be written.
    """
    path = Path(path)
    if path.suffix == ".gz":
        raise ValueError(f"{path} is compressed and can't grow: run into a .jsonl and compress it afterwards")
    with writing(path), path.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        if not size or file.read() == b"\n":  # nearly always, and then the rest need not be read
            return False
        file.seek(0)
        content = file.read()
        start = content.rfind(b"\n") + 1
        if _is_whole(content[start:]):
            file.write(b"\n")  # a complete line that lacks only its end
            return False
        file.truncate(start)
        return True


def join_results(paths: Sequence[str | Path]) -> tuple[dict[str, Any], list[Record]]:
    """Join the result files of a run's parts, one per part, in any order.

    Raises ValueError unless they are the parts of one run, each once and complete.
    """
    files = [(Path(path), *read_results(path)) for path in paths]
    files.sort(key=lambda file: file[1].get("part", [1, 1]))
    place, first, _ = files[0]
    parts = [header.get("part", [1, 1]) for _, header, _ in files]
    if parts != [[i, len(files)] for i in range(1, len(files) + 1)]:
        listed = ", ".join(
            f"{path} is part {i}/{n}" for (path, _, _), (i, n) in zip(files, parts, strict=True)
        )
        raise ValueError(f"{listed}: give each part of one run once, or report each run by itself")
    for path, header, _ in files[1:]:
        for name in {**first, **header}.keys() - {"part", "command", "machine", "kinds"}:
            if header.get(name) != first.get(name):
                differs = f"its {name} is {short(header.get(name))}, not {short(first.get(name))}"
                raise ValueError(f"{path} is of another run than {place}: {differs}; report each by itself")
    images = [[list(group) for _, group in groupby(rows, lambda row: row["image"])] for *_, rows in files]
    turns = zip_longest(*images, fillvalue=[])  # parts take images in turns: the order of the whole run
    records = [record for turn in turns for image in turn for record in image]
    if len(records) != first.get("questions", len(records)):
        raise ValueError(
            f"the parts have {len(records)} of {first['questions']} questions: run each to its end first"
        )
    owners: dict[str, Path] = {}
    for path, _, rows in files:
        for record in rows:
            other = owners.setdefault(record["id"], path)
            if other != path:
                raise ValueError(
                    f"{path} and {other} both have question {short(record['id'])}: run them anew"
                )
    return {**first, "part": [1, 1]}, records


def encode_kept(keep: Any, total: int) -> str:
    """Encode kept cells of an image as base64 of a bit mask: 172 letters for 1024 cells.

    `keep` are indices [K] in any order (a list, an array or a tensor), `total` is the number N of cells.

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
    """Return the mask that `encode_kept` wrote, bool [N]; ValueError if it is not one of `total` cells."""
    try:
        packed = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"kept cells {short(text)} are not base64: evaluate again") from error
    bits = np.unpackbits(packed).astype(bool)
    if len(packed) != math.ceil(total / 8) or bits[total:].any():  # padding to a whole byte is 0
        raise ValueError(f"{len(bits)} bits are no mask of {total} cells: `total` is another image's")
    return bits[:total]


def _line(record: Record) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of a file from 1, read one at a time; an incomplete last one is dropped."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            most = max(SMALL, MAX_GROWTH * path.stat().st_size)  # limits a compression bomb
            total = 0
            for number in count(1):
                line = file.readline(MAX_LINE + 1)
                total += len(line)
                if path.suffix == ".gz" and total > most:
                    raise ValueError(
                        f"{path} unpacks to more than {MAX_GROWTH} times its size, those of evaluations to "
                        "12 at most: if it is one, unpack it and give the .jsonl"
                    )
                if len(line) > MAX_LINE:
                    raise ValueError(
                        f"{path}, line {number} is longer than {MAX_LINE:,} bytes: "
                        "give the .jsonl of an evaluation"
                    )
                if not line or (not line.endswith(b"\n") and not _is_whole(line)):
                    return
                yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is no whole gzip file ({error}): copy or compress it again") from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(f"{path} cannot be read ({reason}): give the .jsonl of an evaluation") from error


def _is_whole(line: bytes) -> bool:
    """Return whether a line without its end is complete JSON."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):  # also if nested too deeply
        return False
    return True


def _object(line: bytes, where: str) -> dict[str, Any]:
    value = parse_json(line, where, _REMEDY)
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {short(value)} and no object: {_REMEDY}")
    return value
