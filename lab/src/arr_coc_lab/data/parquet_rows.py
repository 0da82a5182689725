"""Child process that reads the rows of a parquet file for `parquet` (a `files.worker`).

A file of a few kilobytes can unpack to gigabytes, which only reading it shows: so it is read with bounded
memory. Images are written into the cache here; the replies are small.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from arr_coc.files.atomic import one_line, write_atomic
from arr_coc.files.validation import short

REMEDY = "it may be damaged or cut off; download it again"
BATCH = 16  # rows that are decoded at a time
LARGEST = 2**26  # most bytes of an image file
MAX_COLUMNS = 1024
LONGEST = 2**16  # most characters of a question; longer texts of other columns are left out
ANSWERS = ("answers", "answer")
QUESTIONS = ("question", "prompt")  # names of the question's column
# first bytes of an image file -> its suffix; WebP begins with its length
_STARTS = {
    b"\x89PNG": "png",
    b"\xff\xd8\xff": "jpg",
    b"GIF8": "gif",
    b"BM": "bmp",
    b"II*\x00": "tif",
    b"MM\x00*": "tif",
}


_readings: dict[
    tuple[Any, ...], Iterator[dict[str, Any]]
] = {}  # open files: (path, columns, next row) -> rows
MAX_READINGS = 4


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Return the next rows of a file.

    Args:
        request: `path`, first `row`, `count` of rows at most (0: close the file), the folder `assets` for
            images, and the names of the `columns`, or None for those of a file of questions.

    Returns:
        `rows`: objects in which `image` is {"file": path in `assets`} or {"name": as the row has it}; `error`
        of the row after them, or None. Fewer rows than `count` without an error are the last.
    """
    path, first, count = request["path"], request["row"], request["count"]
    key = path, tuple(request["columns"] or ())
    reading = _readings.pop((*key, first), None)
    rows: list[dict[str, Any]] = []
    if not count:
        return {"rows": rows, "error": None}
    try:
        if reading is None:  # the first request; or the child that had the file open was ended
            reading = islice(_rows(Path(path), request["columns"]), first, None)
        for number, row in enumerate(islice(reading, count), first + 1):
            rows.append(_plain_row(row, Path(request["assets"]), f"{path}, row {number}"))
    except ValueError as error:
        return {"rows": rows, "error": str(error)}
    if len(rows) == count:
        if len(_readings) == MAX_READINGS:
            del _readings[next(iter(_readings))]
        _readings[*key, first + count] = reading
    return {"rows": rows, "error": None}


def _rows(path: Path, columns: list[str] | None) -> Iterator[dict[str, Any]]:
    pyarrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())  # other pools reserve more than they need
    try:
        file = parquet.ParquetFile(
            path, pre_buffer=False, thrift_string_size_limit=2**24, thrift_container_size_limit=2**20
        )
        names = _columns(file.schema_arrow, path, columns)
        for batch in file.iter_batches(BATCH, columns=list(names), use_threads=False):
            for number in range(batch.num_rows):
                yield {names[name]: batch.column(name)[number].as_py() for name in names}
    except MemoryError:  # pyarrow's is an ArrowException too, but says nothing about the file
        raise
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} can't be read ({one_line(error)}): {REMEDY}") from error


def _columns(schema: Any, path: Path, columns: list[str] | None) -> dict[str, str]:
    """Return the columns that are read and what they are called here: `columns`, or those of a file of
    questions.
    """
    kinds: Any = importlib.import_module("pyarrow.types")
    types = {field.name: field.type for field in schema}
    if len(types) > MAX_COLUMNS:
        raise ValueError(f"{path} has {len(types):,} columns: give a file of questions")
    question = next((name for name in QUESTIONS if name in types), QUESTIONS[0])
    for name in columns or ("image", question):
        if name not in types:
            has = ", ".join(short(name) for name in list(types)[:12])
            raise ValueError(f"{path} has no column {name!r} (it has {has}): rename the one that is meant")
    if columns is not None:
        return {name: name for name in columns}
    plain = (
        kinds.is_string,
        kinds.is_large_string,
        kinds.is_integer,
        kinds.is_floating,
    )
    wanted = ("image", "boxes", *ANSWERS)
    others = {name for name, kind in types.items() if any(is_kind(kind) for is_kind in plain)}
    return {
        name: "question" if name == question else name
        for name in types
        if name in (question, *wanted) or name in others
    }


def _plain_row(row: dict[str, Any], assets: Path, where: str) -> dict[str, Any]:
    """Return a row as JSON; long texts beside the question and the answers are left out."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if name == "image":
            plain[name] = _image(value, assets, where)
        elif name == "question" and isinstance(value, str):
            plain[name] = value[: LONGEST + 1]
        elif name in (*ANSWERS, "boxes", "question") or not isinstance(value, str) or len(value) <= LONGEST:
            plain[name] = _plain(value)
    return plain


def _plain(value: Any) -> Any:
    """Return a value as JSON; bytes, dates and so on become an object that no field accepts."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return value if isinstance(value, str | int | float | None) else {type(value).__name__: short(value)}


def _image(value: Any, assets: Path, where: str) -> dict[str, str]:
    """Return the file of a row's image in the cache, or its name in the folder."""
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"{where}: {len(value)} images, where one question is about one: leave it out")
        value = value[0]
    content, name = value, None
    if isinstance(value, Mapping):
        content, name = value.get("bytes"), value.get("path")
    elif isinstance(value, str):
        content, name = None, value
    if content is None and isinstance(name, str):
        return {"name": name}
    if not isinstance(content, bytes):
        raise ValueError(f"{where}: 'image' is {short(value)}: it should be an image file's bytes or path")
    return {"file": str(store_image(content, assets, where))}


def store_image(content: bytes, assets: Path, where: str) -> Path:
    """Write an image file into the folder of the cache, named by its digest, unless it is there.

    Returns its path; a ValueError for bytes that begin as no picture, or too many.
    """
    if len(content) > LARGEST:
        raise ValueError(
            f"{where}: the image has {len(content):,} bytes, more than {LARGEST:,}: make it smaller"
        )
    endings = (ending for start, ending in _STARTS.items() if content.startswith(start))
    ending = "webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else next(endings, None)
    if ending is None:
        raise ValueError(f"{where}: 'image' begins with {content[:8]!r}, which is no image file: check it")
    digest = hashlib.sha256(content).hexdigest()
    path = assets / digest[:2] / f"{digest}.{ending}"
    if not path.is_file() or path.stat().st_size != len(content):
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomic(content, path)
        except OSError as error:
            raise ValueError(
                f"{where}: {str(path)!r} can't be written ({error.strerror}): make room there, or set HF_HOME"
            ) from error
    return path
