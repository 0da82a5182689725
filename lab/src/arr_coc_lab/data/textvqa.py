"""Reader of TextVQA: questions on text in photographs, ten answers each (Singh et al. 2019; textvqa.org).

TextVQA_0.5.1_val.json   {"data": [{question_id, question, image_id, image_classes, answers: [10], ...}]}
train_images/003a8ae2ef43b901.jpg     images of val are among those of train
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arr_coc.data.record import (
    Answers,
    Example,
    Fields,
    HiddenAnswers,
    Id,
    Text,
    find_file,
    find_image,
    get_meta,
    read_json,
    records,
    take,
)


class _Question(Fields):
    question_id: Id
    image_id: Text
    question: Text
    answers: Answers


class _TestQuestion(_Question):
    answers: HiddenAnswers


def read_textvqa(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """The questions of `split` (train, val, test) in file order; those of test have no answers.

    Raises ValueError for a missing file, image or field.
    """
    images = "test_images" if split == "test" else "train_images"
    name = f"TextVQA_0.5.1_{split}.json"
    path = find_file(folder, (name,), f"put {name} and {images}/003a8ae2ef43b901.jpg into one folder")
    questions = records(path, read_json(path), "data")
    return take((_example(folder, images, split, record, where) for where, record in questions), limit)


def _example(folder: Path, images: str, split: str, record: dict[str, Any], where: str) -> Example:
    question = (_TestQuestion if split == "test" else _Question).of(record, where)
    return Example(
        id=question.question_id,
        image=find_image(folder, question.image_id, where, (images, f"images/{images}", "images")),
        question=question.question,
        answers=question.answers,
        meta=get_meta(record, "image_id", "image_classes"),
        where=where,
    )
