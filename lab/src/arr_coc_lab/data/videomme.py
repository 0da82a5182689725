"""Reader of Video-MME: four options on clips of 11 seconds to an hour (Fu et al. 2024; video-mme.github.io).

test.jsonl, test.json     one object per question:
                          {videoID, question_id, duration, question, options, answer, ...}
videomme.json             or one per video, as the official program reads it:
                          [{video_id, duration, questions: [{question_id, question, options, answer, ...}]}]
data/fFjv93ACGo8.mp4      as videoID, url or video_id names it (videos/ or video/ will do)

The Hub has a parquet file of the first form: `read_parquet("test-00000-of-00001.parquet").to_json(
"test.jsonl", orient="records", lines=True)` by pandas converts it. `options` have their letters ("A. ...").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from arr_coc.data.record import (
    Example,
    Fields,
    Id,
    Text,
    find_file,
    get_meta,
    read_json,
    read_lines,
    records,
    take,
)
from arr_coc.files.validation import short
from arr_coc_lab.data.clips import LETTERS, check_options, choice_answers, find_clip, with_options

_META = ("duration", "domain", "sub_category", "task_type")
_FOLDERS = ("data", "videos", "video", "")


class _Question(Fields):
    question_id: Id
    question: Text
    options: Annotated[list[Text], Field(min_length=2, max_length=len(LETTERS))]
    answer: Text


def read_videomme(folder: Path, split: str = "test", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of `split` (only test exists) in file order.

    Raises ValueError for a missing file, clip or field.
    """
    layout = f"write {split}.jsonl from the published parquet file (see this reader's docs), beside data/"
    names = [f"{base}{name}" for base in ("", "videomme/") for name in (f"{split}.jsonl", f"{split}.json",
             "videomme.json", "Video-MME.json")]  # fmt: skip
    path = find_file(folder, names, layout)
    rows = read_lines(path) if path.suffix == ".jsonl" else records(path, read_json(path))
    return take(
        (_example(folder, record, where) for where, record in chain.from_iterable(map(_flat, rows))), limit
    )


def _flat(row: tuple[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the questions of an object: itself, or those in it with the fields of their video."""
    where, record = row
    questions = record.get("questions")
    if questions is None:
        yield where, record
        return
    if not isinstance(questions, list) or not all(isinstance(question, dict) for question in questions):
        raise ValueError(
            f"{where}: field 'questions' is no list of objects: give the file as it is published"
        )
    video = {key: value for key, value in record.items() if key != "questions"}
    for number, question in enumerate(questions, 1):
        yield f"{where}, question {number}", video | question


def _example(folder: Path, record: dict[str, Any], where: str) -> Example:
    question = _Question.of(record, where)
    check_options(question.options, where)
    options = [re.sub(r"^\(?[A-H][.):]\s*", "", option) for option in question.options]
    letter = question.answer.strip("(). ").upper()
    if len(letter) != 1 or letter not in LETTERS[: len(options)]:
        raise ValueError(
            f"{where}: answer {short(question.answer)} is no letter up to {LETTERS[len(options) - 1]}: "
            "correct it"
        )
    return Example(
        id=question.question_id,
        image=find_clip(folder, _name(record, where), where, _FOLDERS),
        question=with_options(question.question, options),
        answers=choice_answers(options, LETTERS.index(letter), where),
        meta=get_meta(record, *_META),
        where=where,
    )


def _name(record: dict[str, Any], where: str) -> str:
    """Return the name of the video without its suffix."""
    name, url = record.get("videoID"), record.get("url")
    if isinstance(name, str) and name:
        return name
    if isinstance(url, str) and (code := re.search(r"(?:v=|youtu\.be/|shorts/)([\w-]{6,})", url)):
        return code[1]
    number = record.get("video_id")
    if isinstance(number, str) and number:
        return number
    raise ValueError(f"{where}: there is no field 'videoID' that names a video: write it")
