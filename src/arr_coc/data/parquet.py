"""Questions in parquet files with their images inside, as lmms-eval and most data sets on the Hub have them.

    DIR/validation-00000-of-00002.parquet, DIR/data/test-00000-of-00001.parquet, DIR/train.parquet

A row is a question. Relied on are the columns `image` (the bytes of an image file, {bytes, path} as the Hub
writes it, a path in the folder, or a list with one of these), `question`, and `answers` or `answer` (a text,
a number, a list of them, or of {answer}); hidden answers may be null. Read where they are there: an id
(`question_id`, `questionId`, `id`), `boxes` (two corners each, in px), and short columns into `Example.meta`.

Images are written once into the assets of the Hub's cache (HF_HOME), named by what they hold. It needs
pyarrow: pip install 'arr-coc[parquet]'.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import cached_assets_path
from pydantic import Field

from arr_coc.core.whole import one_line, write_whole
from arr_coc.data.record import (
    Example,
    Fields,
    FourNumbers,
    HiddenAnswers,
    Id,
    NoSuchFile,
    Text,
    corners,
    find_image,
    get_meta,
    take,
)
from arr_coc.store.validation import short

SPLITS = {"val": "validation", "dev": "validation"}
"""Other names of splits."""
IDS = ("question_id", "questionId", "id")
ANSWERS = ("answers", "answer")
ROWS = 16
"""Rows that are read at a time."""
LARGEST = 2**26
"""The most bytes of an image file."""
MOST_COLUMNS = 1024
LONGEST = 2**16
"""The most characters of a question, and what `meta` takes of a text."""
_STARTS = {
    b"\x89PNG": "png",
    b"\xff\xd8\xff": "jpg",
    b"GIF8": "gif",
    b"BM": "bmp",
    b"II*\x00": "tif",
    b"MM\x00*": "tif",
}
"""How an image file begins, and the ending of its name; WebP begins with its length."""


class _Row(Fields):
    id: Id | None = None
    question: Text = Field(max_length=LONGEST)
    answers: HiddenAnswers
    boxes: list[FourNumbers] = Field(default_factory=list)


def read_parquet(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """The questions of a split's parquet files, files by name and rows in their order.

    Args:
        folder: with the files, or with `data/` where they are; one file will do.
        split: what their names begin with; "val" is "validation".
        limit: at most so many questions.

    Raises:
        ValueError: pyarrow is missing, no such split, a damaged file, or a missing or wrong column.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError("parquet needs pyarrow, which is not installed: pip install 'arr-coc[parquet]'")
    files = _files(folder, split)
    return take((example for file in files for example in _examples(file, split)), limit)


def _files(folder: Path, split: str) -> list[Path]:
    """The files of a split."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise ValueError(f"folder {str(folder)!r} does not exist: check the path of the data set")
    files = sorted(file for place in (folder, folder / "data") for file in place.glob("*.parquet"))
    names = (split, SPLITS.get(split, split))
    chosen = [file for file in files if file.stem.partition("-")[0] in names]
    if not chosen:
        splits = ", ".join(sorted({file.stem.partition("-")[0] for file in files}))
        remedy = (
            f"use one of the splits {splits}" if splits else "put validation-00000-of-00001.parquet there"
        )
        raise NoSuchFile(f"{folder} has no parquet file of split {split!r}: {remedy}")
    return chosen


def _examples(path: Path, split: str) -> Iterator[Example]:
    pyarrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(
            path, pre_buffer=False, thrift_string_size_limit=2**24, thrift_container_size_limit=2**20
        )
        names = _columns(file.schema_arrow, path)
        number = 0
        for batch in file.iter_batches(ROWS, columns=names):
            for row in batch.to_pylist():
                number += 1
                yield _example(path, split, row, number)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(
            f"{path} can't be read ({one_line(error)}): it may be damaged or cut off; download it again"
        ) from error


def _columns(schema: Any, path: Path) -> list[str]:
    """The columns that are read: those relied on, and texts and numbers for `meta`."""
    kinds: Any = importlib.import_module("pyarrow.types")
    types = {field.name: field.type for field in schema}
    if len(types) > MOST_COLUMNS:
        raise ValueError(f"{path} has {len(types):,} columns: give a file of questions")
    for name in ("image", "question"):
        if name not in types:
            columns = ", ".join(short(name) for name in list(types)[:12])
            raise ValueError(
                f"{path} has no column {name!r} (it has {columns}): rename the one that is meant"
            )
    plain = (
        kinds.is_string,
        kinds.is_large_string,
        kinds.is_integer,
        kinds.is_floating,
    )
    wanted = ("image", "question", "boxes", *ANSWERS)
    return [name for name, kind in types.items() if name in wanted or any(is_kind(kind) for is_kind in plain)]


def _example(path: Path, split: str, row: dict[str, Any], number: int) -> Example:
    where = f"{path}, row {number}"
    name = next((name for name in IDS if row.get(name) not in (None, "")), None)
    answers = next((row[name] for name in ANSWERS if row.get(name) is not None), None)
    if isinstance(answers, list):
        answers = [each.get("answer") if isinstance(each, dict) else each for each in answers]
    record = {"question": row["question"], "answers": answers, "boxes": row.get("boxes") or []}
    question = _Row.of(record if name is None else record | {"id": row[name]}, where)
    others = [key for key in row if key not in ("image", "question", "boxes", *ANSWERS, *IDS)]
    texts = {key: row[key] for key in others if len(str(row[key])) <= LONGEST}
    return Example(
        id=f"{split}-{number}" if question.id is None else question.id,
        image=_image(path.parent, row["image"], where),
        question=question.question,
        answers=question.answers,
        boxes=tuple(corners(box, "xyxy", where) for box in question.boxes),
        meta=get_meta(texts, *texts),
        where=where,
    )


def _image(folder: Path, value: Any, where: str) -> Path:
    """The file of a row's image: one in the folder, or one in the cache."""
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
        return find_image(folder, name, where, ("", "images"))
    if not isinstance(content, bytes):
        raise ValueError(f"{where}: 'image' is {short(value)}: it should be an image file's bytes or path")
    return _stored(content, where)


def _stored(content: bytes, where: str) -> Path:
    """An image file of the cache with this content, written if it isn't there."""
    if len(content) > LARGEST:
        raise ValueError(
            f"{where}: the image has {len(content):,} bytes, more than {LARGEST:,}: make it smaller"
        )
    endings = (ending for start, ending in _STARTS.items() if content.startswith(start))
    ending = "webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else next(endings, None)
    if ending is None:
        raise ValueError(f"{where}: 'image' begins with {content[:8]!r}, which is no image file: check it")
    digest = hashlib.sha256(content).hexdigest()
    path = cached_assets_path("arr-coc", "parquet", digest[:2]) / f"{digest}.{ending}"
    if not path.is_file() or path.stat().st_size != len(content):
        try:
            write_whole(content, path)
        except OSError as error:
            raise ValueError(
                f"{where}: {str(path)!r} can't be written ({error.strerror}): make room there, or set HF_HOME"
            ) from error
    return path
