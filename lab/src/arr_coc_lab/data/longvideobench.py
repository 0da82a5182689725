"""Reader of LongVideoBench: questions about a moment of clips of up to an hour (Wu et al. 2024).

lvb_val.json, lvb_test_wo_gt.json     [{id, video_path, question, candidates, correct_choice, ...}]
videos/86CxyhFV9MI.mp4                as video_path names it
subtitles/86CxyhFV9MI_en.json         as subtitle_path names it; not read here

`correct_choice` counts from 0 and is missing in the test file; the parquet form has `option0` to `option4`
in place of `candidates`. Published are accuracies by `duration_group` (seconds at most) and over all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from arr_coc.data.record import Example, Fields, Id, Text, find_file, get_meta, read_json, records, take
from arr_coc_lab.data.clips import LETTERS, check_options, choice_answers, find_clip, with_options

_META = (
    "duration_group", "duration", "question_category", "topic_category", "level", "subtitle_path",
    "starting_timestamp_for_subtitles",
)  # fmt: skip
_FILES = {"val": ("lvb_val.json",), "test": ("lvb_test_wo_gt.json", "lvb_test.json")}
MISSING = "N/A"  # a missing option in the parquet form


class _Question(Fields):
    id: Id
    video_path: Text
    question: Text
    candidates: Annotated[list[Text], Field(min_length=2, max_length=len(LETTERS))]
    correct_choice: Annotated[int, Field(strict=True, ge=0)]


class _TestQuestion(_Question):
    correct_choice: int = -1


def read_longvideobench(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of `split` (val, test) in file order; those of test have no answers.

    Raises ValueError for an unknown split, or a missing file, clip or field.
    """
    if split not in _FILES:
        raise ValueError(f"LongVideoBench has no split {split!r}: use {' or '.join(_FILES)}")
    layout = f"put {_FILES[split][0]} and videos/86CxyhFV9MI.mp4, ... into one folder"
    path = find_file(folder, _FILES[split], layout)
    rows = records(path, read_json(path))
    return take((_example(folder, split, record, where) for where, record in rows), limit)


def _example(folder: Path, split: str, record: dict[str, Any], where: str) -> Example:
    if "candidates" not in record and "option0" in record:
        options = [record.get(f"option{i}", MISSING) for i in range(5)]
        record = record | {"candidates": [option for option in options if option != MISSING]}
    question = (_TestQuestion if split == "test" else _Question).of(record, where)
    check_options(question.candidates, where)
    answers: tuple[str, ...] = ()
    if split != "test":
        answers = choice_answers(question.candidates, question.correct_choice, where)
    return Example(
        id=question.id,
        image=find_clip(folder, question.video_path, where, ("videos", "")),
        question=with_options(question.question, question.candidates),
        answers=answers,
        meta=get_meta(record, *_META),
        where=where,
    )
