"""Reader of ChartQA: questions on charts (Masry et al. 2022; github.com/vis-nlp/ChartQA).

ChartQA Dataset/test/test_human.json       [{imgname, query, label}]
ChartQA Dataset/test/test_augmented.json   the same; its questions were written by a program
ChartQA Dataset/test/png/41699051005347.png
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from arr_coc.data.record import (
    Answers,
    Example,
    Fields,
    Text,
    find_file,
    find_image,
    read_json,
    records,
    take,
)

_PARTS = ("human", "augmented")


class _Question(Fields):
    imgname: Text
    query: Text
    label: Answers


def read_chartqa(folder: Path, split: str = "test", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of `split` in file order, those by people before those by a program.

    `split` is train, val or test (both parts; their mean is the published figure), or with _human or
    _augmented one of them. ValueError for a missing file, image or field.
    """
    base, _, part = split.partition("_")
    if part and part not in _PARTS:
        raise ValueError(f"ChartQA has no split {split!r}: use {base}, {base}_human or {base}_augmented")
    parts = (part,) if part else _PARTS
    return take(chain.from_iterable([_part(folder, base, each) for each in parts]), limit)


def _part(folder: Path, base: str, part: str) -> Iterator[Example]:
    name = f"{base}_{part}.json"
    layout = f"give the folder with 'ChartQA Dataset/{base}/{name}' and 'ChartQA Dataset/{base}/png'"
    path = find_file(folder, (f"ChartQA Dataset/{base}/{name}", f"{base}/{name}", name), layout)
    entries = enumerate(records(path, read_json(path)))
    return (_example(path.parent, base, part, i, record, where) for i, (where, record) in entries)


def _example(folder: Path, base: str, part: str, i: int, record: dict[str, Any], where: str) -> Example:
    question = _Question.of(record, where)
    return Example(
        id=f"{base}_{part}-{i}",  # the files have none
        image=find_image(folder, question.imgname, where, ("png",)),
        question=question.query,
        answers=question.label,
        meta={"part": part},
        where=where,
    )
