"""Reader of ViDoRe V3: questions about pages of documents, with boxes by people (Loison et al. 2026).

    queries/test-*.parquet    query_id, query, answer, language
    qrels/test-*.parquet      query_id, corpus_id, score, bounding_boxes: [{annotator, x1, x2, y1, y2}]
    corpus/test-*.parquet     corpus_id, image: a page

The benchmark ranks pages, and has answers judged by a model: no program here scores either. What is read is
the evidence: which part of a page a query needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from arr_coc.data.record import (
    Box,
    Example,
    Fields,
    HiddenAnswers,
    Id,
    NoSuchFile,
    Number,
    Text,
    check_folder,
    check_inside,
    take,
)
from arr_coc_lab.data.parquet import read_rows, split_files
from arr_coc_lab.data.parquet_rows import LONGEST, REMEDY

MAX_ROWS = 2**20  # of the queries, and of their pages
MAX_BOXES = 4096  # of a query on a page
_TABLES = ("queries", "qrels", "corpus")


class _Query(Fields):
    query_id: Id
    query: Text = Field(max_length=LONGEST)
    answer: HiddenAnswers
    language: Text


class _Corners(Fields):
    x1: Number
    x2: Number
    y1: Number
    y2: Number


class _Judgement(Fields):
    query_id: Id
    corpus_id: Id
    score: Number
    bounding_boxes: list[_Corners] | None = Field(default=None, max_length=MAX_BOXES)


class _Page(Fields):
    corpus_id: Id


_M = TypeVar("_M", _Query, _Judgement)


def read_vidore(folder: Path, split: str = "test", limit: int | None = None) -> Iterator[Example]:
    """Return the queries of one of the sets of ViDoRe V3 about each of their pages, in the order of the
    pages.

    A query about several pages is a question about each. Its boxes there, of all annotators, are the
    evidence; a page may have none. `split` is test (all languages) or a language, as english. ValueError
    without pyarrow, or for a missing or damaged file, or an unknown language.
    """
    check_folder(folder)
    missing = [name for name in _TABLES if not (folder / name).is_dir()]
    if missing:
        raise NoSuchFile(f"{folder} has no {missing[0]}/test-*.parquet: put queries, qrels and corpus there")
    for name in _TABLES:
        check_inside(folder / name, folder)
    queries = {query.query_id: query for _, query in _table(folder / "queries", _Query)}
    languages = sorted({query.language for query in queries.values()})
    if split not in ("test", *languages):
        raise ValueError(f"{folder} has no split {split!r}: use test, or one of {', '.join(languages)}")
    pages: dict[str, list[tuple[str, _Query, _Judgement]]] = {}
    for where, judgement in _table(folder / "qrels", _Judgement):
        query = queries.get(judgement.query_id)
        if query is not None and split in ("test", query.language) and judgement.score > 0:
            pages.setdefault(judgement.corpus_id, []).append((where, query, judgement))
    return take(_questions(folder / "corpus", pages), limit)


def _table(folder: Path, model: type[_M]) -> Iterator[tuple[str, _M]]:
    """Yield the rows of a table without pictures, with their places."""
    for path in split_files(folder, "test"):
        for number, row in enumerate(read_rows(path, list(model.model_fields)), 1):
            where = f"{path}, row {number}"
            if number > MAX_ROWS:
                raise ValueError(f"{where}: at most {MAX_ROWS:,} are read: give the file as it is published")
            yield where, model.of(row, where)


def _questions(folder: Path, pages: dict[str, list[tuple[str, _Query, _Judgement]]]) -> Iterator[Example]:
    for path in split_files(folder, "test"):
        for number, row in enumerate(read_rows(path, ["corpus_id", "image"]), 1):
            place = f"{path}, row {number}"
            page, image = _Page.of(row, place).corpus_id, row["image"]
            if "file" not in image:
                raise ValueError(f"{place}: the page is not in the file: {REMEDY}")
            for where, query, judgement in pages.get(page, ()):
                yield Example(
                    id=f"{query.query_id}/{page}",
                    image=Path(image["file"]),
                    question=query.query,
                    answers=query.answer,
                    boxes=tuple(_upright(judgement.bounding_boxes or [])),
                    meta={"language": query.language, "page": page, "score": f"{judgement.score:g}"},
                    where=where,
                )


def _upright(boxes: list[_Corners]) -> Iterator[Box]:
    """Boxes from least to largest corner, from wherever they were drawn; those without area left out."""
    for box in boxes:
        if box.x1 != box.x2 and box.y1 != box.y2:
            yield min(box.x1, box.x2), min(box.y1, box.y2), max(box.x1, box.x2), max(box.y1, box.y2)
