"""Your own questions: JSON lines beside the images, one question a line.

    {"image": "a.png", "question": "What color is the ball?", "answer": "red"}
    {"image": "b.png", "question": "Which?", "answers": ["red", "the red one"], "boxes": [[3, 4, 20, 30]]}

`box_format` is what boxes hold: xyxy (two corners, the default) or xywh (top left corner, width, height),
in pixels. `map` names the file of a relevance map (see `maps`). `id` names the question, else its number in
the file does; further texts and numbers go to `Example.meta`. This is also what `arr-coc draw` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from arr_coc.data.evidence import find_map
from arr_coc.data.record import (
    Answers,
    Example,
    Fields,
    FourNumbers,
    Id,
    Text,
    corners,
    find_file,
    find_image,
    get_meta,
    read_lines,
    take,
)


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
    """The questions of `{split}.jsonl`, else of `questions.jsonl`, in file order; each has an answer.

    Args:
        folder: where the lines and the images are; a JSON lines file itself will do.
        split: the name of the file.
        limit: at most so many questions.

    Raises:
        ValueError: a missing file, image or field; a line that is no object.
    """
    return _read(folder, split, limit, answered=True)


def read_folder(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """As `read_jsonl`, but answers are not needed, and left out where there are some.

    For self-distillation, where the model's own reading with all tokens teaches.

    Raises:
        ValueError: as `read_jsonl`.
    """
    return _read(folder, split, limit, answered=False)


def _read(folder: Path, split: str, limit: int | None, answered: bool) -> Iterator[Example]:
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
        answers=own_answers(record, where) if answered else (),
        boxes=tuple(corners(box, question.box_format, where) for box in question.boxes),
        meta=get_meta(record, *(key for key in record if key not in _FIELDS)),
        where=where,
        map=None if question.map is None else find_map(folder, question.map, where),
    )


def own_answers(record: dict[str, Any], where: str) -> tuple[str, ...]:
    """The texts of `answer` or `answers`.

    Raises:
        ValueError: both or neither are there, or one is no text.
    """
    own = OwnAnswers.of(record, where)
    if not (own.answer or own.answers):
        raise ValueError(f"{where}: 'answer' is missing: add it")
    return own.answers or own.answer
