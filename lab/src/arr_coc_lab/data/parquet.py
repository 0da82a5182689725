"""Reader of questions in parquet files with their images inside, as lmms-eval and the Hub have them.

    DIR/validation-00000-of-00002.parquet, DIR/data/test-00000-of-00001.parquet, DIR/train.parquet

A row is a question. Needed are the columns `image` (an image file's bytes, {bytes, path}, a path in the
folder, or a list with one of these), `question` or `prompt`, and `answers` or `answer` (a text, a number, a
list of them or of {answer}; null if hidden). Read if present: an id (`IDS`), `boxes` (two corners in px), and
short columns into `Example.meta`. Images are written once into the assets of the Hub's cache (HF_HOME). Needs
pyarrow. ZoomBench (Wei et al. 2026) is such a file.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub import cached_assets_path
from pydantic import Field

from arr_coc.data.record import (
    Example,
    Fields,
    FourNumbers,
    HiddenAnswers,
    Id,
    NoSuchFile,
    Text,
    check_inside,
    corners,
    find_image,
    get_meta,
    take,
)
from arr_coc.files.worker import Worker
from arr_coc_lab.data import parquet_rows
from arr_coc_lab.data.parquet_rows import ANSWERS, LONGEST, REMEDY
from arr_coc_lab.extras import install_line

SPLITS = {"val": "validation", "dev": "validation"}  # other names of splits
IDS = ("question_id", "questionId", "id")
ROWS = 16  # asked for at a time
# Memory in MB for any file, and times its bytes in addition: images do not shrink in a file, and a page of
# them is held compressed, unpacked and as rows.
MEMORY, GROWTH = 1024, 8
SECONDS = 120.0  # of one request for rows


class _Row(Fields):
    id: Id | None = None
    question: Text = Field(max_length=LONGEST)
    answers: HiddenAnswers
    boxes: list[FourNumbers] = Field(default_factory=list)


def read_parquet(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of a split's parquet files, files by name and rows in their order.

    `folder` may be one file. ValueError without pyarrow, or for a missing split, column or damaged file.
    """
    files = split_files(folder, split)
    return take((example for file in files for example in _examples(file, split)), limit)


def read_zoombench(folder: Path, split: str = "test", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of ZoomBench as by `read_parquet`; its only split is test, options stand in the
    question.

    Whole pictures are read. The file has a crop of each that holds the answer, but not its place.
    """
    return read_parquet(folder, split, limit)


def split_files(folder: Path, split: str) -> list[Path]:
    """Return the parquet files of a split in a folder or its `data`, by name, or `folder` itself if it is a
    file.

    ValueError without pyarrow, or if there is no such folder; `NoSuchFile` if it has no such files.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError(f"parquet needs pyarrow, which is not installed: {install_line('parquet')}")
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise ValueError(f"folder {str(folder)!r} does not exist: check the path of the data set")
    files = sorted(file for place in (folder, folder / "data") for file in place.glob("*.parquet"))
    names = (split, SPLITS.get(split, split))
    for file in files:
        check_inside(file, folder)
    chosen = [file for file in files if file.stem.partition("-")[0] in names]
    if not chosen:
        splits = ", ".join(sorted({file.stem.partition("-")[0] for file in files}))
        remedy = (
            f"use one of the splits {splits}" if splits else "put validation-00000-of-00001.parquet there"
        )
        raise NoSuchFile(f"{folder} has no parquet file of split {split!r}: {remedy}")
    return chosen


def _examples(path: Path, split: str) -> Iterator[Example]:
    number = 0
    for number, row in enumerate(read_rows(path), 1):
        yield _example(path, split, row, number)


def read_rows(path: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, as `parquet_rows.work` gives them, or of it the `columns` named.

    ValueError for a missing column, or a file that is damaged or too large unpacked.
    """
    try:
        assets = cached_assets_path("arr-coc", "parquet", "00").parent
        megabytes = MEMORY + GROWTH * path.stat().st_size // 2**20
    except OSError as error:
        raise ValueError(f"{path} can't be read ({error.strerror}): check it, or set HF_HOME") from error
    worker = _worker(1 << (megabytes - 1).bit_length())
    request: dict[str, Any] = {
        "path": str(path),
        "row": 0,
        "count": ROWS,
        "assets": str(assets),
        "columns": columns,
    }
    try:
        while True:
            try:
                reply = worker.ask(request)
            except ValueError as error:
                raise ValueError(f"{path} can't be read ({error}): {REMEDY}") from error
            yield from reply["rows"]
            if reply["error"] is not None:
                raise ValueError(reply["error"])
            if len(reply["rows"]) < ROWS:
                return
            request["row"] += ROWS
    except GeneratorExit:  # no more rows are wanted: the child lets the file go
        with contextlib.suppress(ValueError, RuntimeError):
            worker.ask(request | {"count": 0})
        raise


@cache
def _worker(megabytes: int) -> Worker:
    """Return the child process for files of some size; it serves one after the other."""
    return Worker(Path(parquet_rows.__file__), "work", SECONDS, megabytes)


def _example(path: Path, split: str, row: dict[str, Any], number: int) -> Example:
    where = f"{path}, row {number}"
    name = next((name for name in IDS if row.get(name) not in (None, "")), None)
    answers = next((row[name] for name in ANSWERS if row.get(name) is not None), None)
    if isinstance(answers, list):
        answers = [each.get("answer") if isinstance(each, dict) else each for each in answers]
    record = {"question": row["question"], "answers": answers, "boxes": row.get("boxes") or []}
    question = _Row.of(record if name is None else record | {"id": row[name]}, where)
    image, category = row["image"], row.get("category")
    others = [key for key in row if key not in ("image", "question", "boxes", *ANSWERS, *IDS)]
    prefix = f"{category}/" if category and isinstance(category, str) else ""  # POPE numbers ids by category
    return Example(
        id=f"{split}-{number}" if question.id is None else f"{prefix}{question.id}",
        image=Path(image["file"])
        if "file" in image
        else find_image(path.parent, image["name"], where, ("", "images")),
        question=question.question,
        answers=question.answers,
        boxes=tuple(corners(box, "xyxy", where) for box in question.boxes),
        meta=get_meta(row, *others),
        where=where,
    )
