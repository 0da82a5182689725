"""Reader of DocVQA, task 1: questions on scanned pages (Mathew et al. 2021; rrc.cvc.uab.es/?ch=17).

val_v1.0_withQT.json or val_v1.0.json    {"data": [{questionId, question, image, docId, answers, ...}]}
documents/xnbl0037_1.png, as "image" names it, or spdocvqa_images/xnbl0037_1.png, as it is packed today
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from arr_coc.data.record import (
    Answers,
    Example,
    Fields,
    HiddenAnswers,
    Id,
    Text,
    check_name,
    find_file,
    find_image,
    get_meta,
    read_json,
    records,
    take,
)


class _Question(Fields):
    questionId: Id
    image: Text
    question: Text
    answers: Answers


class _TestQuestion(_Question):
    answers: HiddenAnswers


def read_docvqa(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """The questions of `split` (train, val, test) in file order; those of test have no answers.

    Raises ValueError for a missing file, image or field.
    """
    names = [f"{split}_v1.0_withQT.json", f"{split}_v1.0.json"]
    layout = f"put {names[0]} and spdocvqa_images/xnbl0037_1.png (or documents/...) into one folder"
    places = [f"{base}{name}" for base in ("", "spdocvqa_qas/", f"{split}/") for name in names]
    path = find_file(folder, places, layout)
    questions = records(path, read_json(path), "data")
    return take((_example(folder, split, record, where) for where, record in questions), limit)


def _example(folder: Path, split: str, record: dict[str, Any], where: str) -> Example:
    question = (_TestQuestion if split == "test" else _Question).of(record, where)
    check_name(question.image, where)
    place = PurePosixPath(question.image)
    inner = str(place.parent)
    under = (inner, "spdocvqa_images", f"{split}/{inner}", "images", "")
    return Example(
        id=question.questionId,
        image=find_image(folder, place.name, where, under),
        question=question.question,
        answers=question.answers,
        meta=get_meta(record, "question_types", "docId", "ucsf_document_id", "ucsf_document_page_no"),
        where=where,
    )
