"""Reader of GQA: composed questions on Visual Genome's images (Hudson and Manning 2019).

testdev_balanced_questions.json   {"201307251": {imageId, question, answer, fullAnswer, types, ...}, ...}
images/n161313.jpg
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arr_coc.data.record import (
    Answers,
    Example,
    Fields,
    Text,
    find_file,
    find_image,
    get_meta,
    read_json,
    take,
)
from arr_coc.files.validation import bare


class _TestQuestion(Fields):
    imageId: Text
    question: Text


class _Question(_TestQuestion):
    answer: Answers


def read_gqa(folder: Path, split: str = "testdev", limit: int | None = None) -> Iterator[Example]:
    """Return the balanced questions of `split` (train, val, testdev, test, challenge) in file order.

    `testdev_all` reads the unbalanced ones. Those of test and challenge have no answers. ValueError for a
    missing file, image or field.
    """
    names = [f"{split}_balanced_questions.json", f"{split}_questions.json"]
    layout = f"put {names[0]} and images/n161313.jpg into one folder"
    places = [f"{base}{name}" for name in names for base in ("", "questions/", "questions1.2/")]
    path = find_file(folder, places, layout)
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no object of questions by their ids: give the file as it is published")
    hidden = split.startswith(("test_", "challenge")) or split == "test"  # but not testdev
    return take((_example(folder, path, key, record, hidden) for key, record in content.items()), limit)


def _example(folder: Path, path: Path, key: str, record: Any, hidden: bool) -> Example:
    where = f"{path}, question {bare(key)}"
    if not isinstance(record, dict):
        raise ValueError(f"{where} is no object: give the file as it is published")
    question = (_TestQuestion if hidden else _Question).of(record, where)
    types = record.get("types")
    meta = get_meta(types, "structural", "semantic", "detailed") if isinstance(types, dict) else {}
    return Example(
        id=key,
        image=find_image(folder, question.imageId, where, ("images", "allImages/images", "")),
        question=question.question,
        answers=question.answer if isinstance(question, _Question) else (),
        meta=meta | get_meta(record, "fullAnswer"),
        where=where,
    )
