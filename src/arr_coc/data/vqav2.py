"""VQAv2: 214,354 questions on COCO's validation images, ten answers each (Goyal et al. 2017; visualqa.org).

v2_OpenEnded_mscoco_val2014_questions.json   {"questions": [{image_id, question, question_id}]}
v2_mscoco_val2014_annotations.json           {"annotations": [{question_id, answers: [{answer}], ...}]}
val2014/COCO_val2014_000000000042.jpg
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
    get_id,
    get_meta,
    get_text,
    read_json,
    records,
    take,
)

_Annotation = tuple[tuple[str, ...], dict[str, str]]  # answers, meta

_SUBSETS = {"train": "train2014", "val": "val2014", "test": "test2015", "test-dev": "test-dev2015"}


def read_vqav2(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """The questions of `split` (train, val, test, test-dev) in file order; those of a test have no answers.

    Both files are read whole before the first question: one tells the answers of the other.

    Raises:
        ValueError: an unknown split; a missing file, image, field or annotation.
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
    known: dict[str, _Annotation] | None = None
    if not split.startswith("test"):
        annotated = find_file(folder, (names[1], f"Annotations/{names[1]}"), layout)
        known = dict(
            _annotation(r, where) for where, r in records(annotated, read_json(annotated), "annotations")
        )
    questions = records(path, read_json(path), "questions")
    return take((_example(folder, images, record, known, where) for where, record in questions), limit)


def _annotation(record: dict[str, Any], where: str) -> tuple[str, _Annotation]:
    said = record.get("answers")
    if not isinstance(said, list) or not all(isinstance(a, dict) for a in said):
        raise ValueError(f"{where}: 'answers' is missing or no list of objects: give the file as published")
    answers = get_answers({"answers": [a.get("answer") for a in said]}, "answers", where)
    meta = get_meta(record, "question_type", "answer_type")
    return get_id(record, "question_id", where), (answers, meta)


def _example(
    folder: Path, images: str, record: dict[str, Any], known: dict[str, _Annotation] | None, where: str
) -> Example:
    key = get_id(record, "question_id", where)
    image_id = get_id(record, "image_id", where)
    if known is not None and key not in known:
        raise ValueError(f"{where}: question {key} has no annotation: give both files of the same split")
    name = f"COCO_{images}_{image_id:0>12}.jpg"
    under = (images, f"images/{images}", f"Images/mscoco/{images}", "")
    answers, meta = known[key] if known is not None else ((), {})
    image = find_image(folder, name, where, under)
    return Example(key, image, get_text(record, "question", where), answers, meta=meta, where=where)
