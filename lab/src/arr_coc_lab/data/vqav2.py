"""Reader of VQAv2: questions on COCO's images, ten answers each (Goyal et al. 2017; visualqa.org).

v2_OpenEnded_mscoco_val2014_questions.json   {"questions": [{image_id, question, question_id}]}
v2_mscoco_val2014_annotations.json           {"annotations": [{question_id, answers: [{answer}], ...}]}
val2014/COCO_val2014_000000000042.jpg
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from arr_coc.data.record import (
    Answers,
    Example,
    Fields,
    Id,
    Text,
    check_once,
    find_file,
    find_image,
    get_meta,
    read_json,
    records,
    take,
)
from arr_coc.files.validation import bare


class _Question(Fields):
    question_id: Id
    image_id: Id
    question: Text


def _texts(values: Any) -> list[Any]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError("it should be a list of objects with an answer each")
    return [value.get("answer") for value in values]


class _Annotation(Fields):
    question_id: Id
    answers: Annotated[Answers, BeforeValidator(_texts)]


_Truth = tuple[tuple[str, ...], dict[str, str]]  # answers, meta

_SUBSETS = {"train": "train2014", "val": "val2014", "test": "test2015", "test-dev": "test-dev2015"}


def read_vqav2(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of `split` (train, val, test, test-dev) in file order; those of a test have no
    answers.

    Raises:
        ValueError: an unknown split; a missing file, image, field or annotation; an id that comes twice.
    """
    if split not in _SUBSETS:
        raise ValueError(f"VQAv2 has no split {split!r}: use one of {', '.join(_SUBSETS)}")
    subset = _SUBSETS[split]
    names = f"v2_OpenEnded_mscoco_{subset}_questions.json", f"v2_mscoco_{subset}_annotations.json"
    images = subset.replace("test-dev", "test")
    layout = f"put {names[0]}, {names[1]} and {images}/COCO_{images}_000000000042.jpg into one folder"
    if split.startswith("test"):
        layout = f"put {names[0]} and {images}/COCO_{images}_000000000042.jpg into one folder"
    path = find_file(folder, (names[0], f"Questions/{names[0]}"), layout)
    truths: dict[str, _Truth] | None = None
    if not split.startswith("test"):
        annotated = find_file(folder, (names[1], f"Annotations/{names[1]}"), layout)
        truths = _truths(annotated)
    questions = records(path, read_json(path), "questions")
    return take((_example(folder, images, record, truths, where) for where, record in questions), limit)


def _truths(path: Path) -> dict[str, _Truth]:
    """Answers and meta of each question of an annotation file."""
    truths: dict[str, _Truth] = {}
    places: dict[str, str] = {}
    for where, record in records(path, read_json(path), "annotations"):
        annotation = _Annotation.of(record, where)
        check_once(annotation.question_id, where, places)
        meta = get_meta(record, "question_type", "answer_type")
        truths[annotation.question_id] = annotation.answers, meta
    return truths


def _example(
    folder: Path, images: str, record: dict[str, Any], truths: dict[str, _Truth] | None, where: str
) -> Example:
    question = _Question.of(record, where)
    key = question.question_id
    if truths is not None and key not in truths:
        raise ValueError(
            f"{where}: question {bare(key)} has no annotation: give both files of the same split"
        )
    name = f"COCO_{images}_{question.image_id:0>12}.jpg"
    under = (images, f"images/{images}", f"Images/mscoco/{images}", "")
    answers, meta = truths[key] if truths is not None else ((), {})
    image = find_image(folder, name, where, under)
    return Example(key, image, question.question, answers, meta=meta, where=where)
