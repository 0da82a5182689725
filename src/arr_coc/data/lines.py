"""Your own questions: JSON lines beside the images, one question a line.

    {"image": "a.png", "question": "What color is the ball?", "answer": "red"}
    {"image": "b.png", "question": "Which?", "answers": ["red", "the red one"], "boxes": [[3, 4, 20, 30]]}

`box_format` says what boxes hold: xyxy (two corners, the default) or xywh (top left corner, width, height),
in pixels. `id` names the question, else its number in the file does; further texts and numbers go to
`Example.meta`. This is also what `arr-coc draw` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arr_coc.data.record import (
    Example,
    find_file,
    find_image,
    get_answers,
    get_boxes,
    get_id,
    get_meta,
    get_text,
    read_lines,
    take,
)

_FIELDS = ("id", "image", "question", "answer", "answers", "boxes", "box_format")


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
    return Example(
        id=get_id(record, "id", where) if "id" in record else str(i),
        image=find_image(folder, get_text(record, "image", where), where, ("", "images")),
        question=get_text(record, "question", where),
        answers=get_own_answers(record, where) if answered else (),
        boxes=get_boxes(record.get("boxes", []), record.get("box_format", "xyxy"), where),
        meta=get_meta(record, *(key for key in record if key not in _FIELDS)),
        where=where,
    )


def get_own_answers(record: dict[str, Any], where: str) -> tuple[str, ...]:
    """The texts of `answer` or `answers`.

    Raises:
        ValueError: both or neither are there, or one is no text.
    """
    if "answer" in record and "answers" in record:
        raise ValueError(f"{where} has both 'answer' and 'answers': keep the one that holds all of them")
    return get_answers(record, "answers" if "answers" in record else "answer", where)
