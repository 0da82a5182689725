"""The data sets by name, each with its reader, metric and prompt; and your own questions as JSON lines.

data, examples = open_data("textvqa:/data/textvqa", limit=500)
for example in examples:
    answer = reply(example.image, example.question + data.prompt)
    score = (example.metric or data.metric)(answer, example.answers)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field, model_validator

from arr_coc.data.maps import find_map
from arr_coc.data.metrics import Metric, loose_match
from arr_coc.data.record import (
    Answers,
    Example,
    Fields,
    FourNumbers,
    Id,
    NoSuchFile,
    Text,
    check_inside,
    corners,
    find_file,
    find_image,
    get_meta,
    read_lines,
    take,
)
from arr_coc.files.paths import local_path
from arr_coc.files.plugins import plugin, plugins
from arr_coc.files.validation import bare, nearest


class OwnAnswers(Fields):
    """The answers of a line that a user wrote: one as `answer`, or all as `answers`."""

    answer: Answers = ()
    answers: Answers = ()

    @model_validator(mode="before")
    @classmethod
    def _one_of_both(cls, record: dict[str, Any]) -> dict[str, Any]:
        if "answer" in record and "answers" in record:
            raise ValueError("it has both 'answer' and 'answers': keep the one that holds all of them")
        return record


class _Question(Fields):
    id: Id | None = None
    image: Text
    question: Text
    boxes: list[FourNumbers] = Field(default_factory=list)
    box_format: Literal["xyxy", "xywh"] = "xyxy"
    map: Text | None = None


_FIELDS = (*_Question.model_fields, *OwnAnswers.model_fields)


def read_jsonl(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """Your own questions: those of `{split}.jsonl`, else of `questions.jsonl`, each with an answer.

        {"image": "a.png", "question": "What color is the ball?", "answer": "red"}
        {"image": "b.png", "question": "Which?", "answers": ["red", "the red one"], "boxes": [[3, 4, 20, 30]]}

    `box_format` is xyxy (two corners in px) or xywh (top left corner, width, height); `map` names a relevance
    map (`evidence.read_map`); further fields go to `Example.meta`. `folder` may be the file itself. A
    ValueError for a missing file, image or field, or a line that is no object.
    """
    return _read_lines(folder, split, limit, answered=True)


def read_folder(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """Your own questions as by `read_jsonl`, but without answers, for self-distillation."""
    return _read_lines(folder, split, limit, answered=False)


def _read_lines(folder: Path, split: str, limit: int | None, answered: bool) -> Iterator[Example]:
    if folder.is_file():
        folder, path = folder.parent, folder
    else:
        layout = 'write one {"image": "a.png", "question": "..."%s} a line, images beside it'
        names = (f"{split}.jsonl", "questions.jsonl")
        path = find_file(folder, names, layout % (', "answer": "..."' if answered else ""))
    lines = enumerate(read_lines(path), 1)
    return take((_example(folder, record, answered, i, where) for i, (where, record) in lines), limit)


def _example(folder: Path, record: dict[str, Any], answered: bool, i: int, where: str) -> Example:
    question = _Question.of(record, where)
    return Example(
        id=str(i) if question.id is None else question.id,
        image=find_image(folder, question.image, where, ("", "images")),
        question=question.question,
        answers=accepted_answers(record, where) if answered else (),
        boxes=tuple(corners(box, question.box_format, where) for box in question.boxes),
        meta=get_meta(record, *(key for key in record if key not in _FIELDS)),
        where=where,
        map=None if question.map is None else find_map(folder, question.map, where),
    )


def accepted_answers(record: dict[str, Any], where: str) -> tuple[str, ...]:
    """Return the texts of `answer` or `answers`; a ValueError if both or neither are there, or one is no
    text.
    """
    own = OwnAnswers.of(record, where)
    if not (own.answer or own.answers):
        raise ValueError(f"{where}: 'answer' is missing: add it")
    return own.answers or own.answer


class QuestionReader(Protocol):
    """Reads the questions of a folder; `split` has the official one of the data set as default."""

    def __call__(self, folder: Path, split: str = ..., limit: int | None = None) -> Iterator[Example]: ...


@dataclass(frozen=True)
class DataSet:
    """One kind of data set on disk: its name, reader, metric and prompt."""

    name: str  # as in NAME:DIR
    read: QuestionReader
    metric: Metric | None  # (answer, truths) -> 0 to 1; None if questions have none that a program can score
    prompt: str  # what follows the question
    clips: bool = False  # whether `Example.image` is a video or a folder of frames
    classes: tuple[str, ...] = ()  # keys of `Example.meta` for `metrics.mean_by_class`


# The public data sets come with `arr-coc-lab`.
OWN = (DataSet("jsonl", read_jsonl, loose_match, ""), DataSet("folder", read_folder, None, ""))


@cache
def data_sets() -> dict[str, DataSet]:
    """Return all data sets by name: those of other distributions, then your own questions."""
    added = (each for name in sorted(plugins("data")) for each in plugin("data", name))
    return {each.name: each for each in (*added, *OWN)}


def open_data(
    spec: str, split: str | None = None, limit: int | None = None, *, clips: bool = True
) -> tuple[DataSet, Iterator[Example]]:
    """Return the data set and the questions that `NAME:DIR` names, such as "textvqa:/data/textvqa".

    `split` None is the one that results are usually published on; `clips` says whether the caller takes
    questions about clips. A ValueError for another form, an unknown name, or what the reader raises.
    """
    name, colon, folder = spec.partition(":")
    sets = data_sets()
    names = ", ".join(sets)
    if not colon or not folder.strip():
        raise ValueError(f"data {spec!r} is not NAME:DIR: write for example textvqa:/data/textvqa ({names})")
    if name.strip().lower() not in sets:
        hint = nearest(name.strip(), sets)
        raise ValueError(f"data set {name!r} is unknown: use one of {names}, or jsonl:DIR for your own{hint}")
    data = sets[name.strip().lower()]
    if data.clips and not clips:
        images = ", ".join(name for name, other in sets.items() if not other.clips)
        raise ValueError(f"data {spec!r} is about clips, and this is done with images: use one of {images}")
    choice = {} if split is None else {"split": split}
    return data, _read(data, local_path(folder.strip()), choice | {"limit": limit})


def _read(data: DataSet, folder: Path, choice: dict[str, Any]) -> Iterator[Example]:
    """Return the questions in a folder, or in the one folder in it that has them, as archives and the Hub
    nest.
    """
    try:
        return data.read(folder, **choice)
    except NoSuchFile as error:
        reason = ValueError(str(error))
    readings: dict[str, Iterator[Example]] = {}
    for inner in _folders(folder):
        with contextlib.suppress(NoSuchFile):
            check_inside(inner, folder)
            readings[inner.name] = data.read(inner, **choice)
    if len(readings) > 1:
        some = ", ".join(map(bare, list(readings)[:12]))
        raise ValueError(f"{folder} has questions in several folders ({some}): give one of them") from reason
    if not readings:
        raise reason
    return next(iter(readings.values()))


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:  # a file, or nothing
        return []
