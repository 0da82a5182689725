"""Reader of POPE: whether a thing is in a photograph (Li et al. 2023; github.com/AoiDragon/POPE).

coco_pope_random.json         {"question_id": 1, "image": "COCO_val2014_000000310196.jpg",
                               "text": "Is there a snowboard in the image?", "label": "yes"}, one a line
coco_pope_popular.json, coco_pope_adversarial.json
val2014/COCO_val2014_000000310196.jpg
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from arr_coc.data.record import Example, Fields, Id, Text, find_file, find_image, read_lines, take

CATEGORIES = ("random", "popular", "adversarial")
_IMAGES = ("val2014", "images/val2014", "images", "")


class _Question(Fields):
    question_id: Id
    image: Text
    text: Text
    label: Literal["yes", "no"]


def read_pope(folder: Path, split: str = "test", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of all three files ("test") or of one category; a small `limit` reads `random`
    alone.

    Raises ValueError for an unknown split, or a missing file, image or field.
    """
    if split not in ("test", *CATEGORIES):
        raise ValueError(f"POPE has no split {split!r}: use test, or one of {', '.join(CATEGORIES)}")
    chosen = CATEGORIES if split == "test" else (split,)
    layout = f"put coco_pope_{chosen[0]}.json and val2014/COCO_val2014_000000310196.jpg into one folder"
    names = {each: f"coco_pope_{each}.json" for each in chosen}
    paths = [(each, find_file(folder, (name, f"coco/{name}"), layout)) for each, name in names.items()]
    return take(chain.from_iterable([_category(folder, each, path) for each, path in paths]), limit)


def _category(folder: Path, category: str, path: Path) -> Iterator[Example]:
    return (_example(folder, category, record, where) for where, record in read_lines(path))


def _example(folder: Path, category: str, record: dict[str, Any], where: str) -> Example:
    question = _Question.of(record, where)
    return Example(
        id=f"{category}/{question.question_id}",  # each file numbers its questions from 1
        image=find_image(folder, question.image, where, _IMAGES),
        question=question.text,
        answers=(question.label,),
        meta={"category": category, "family": category},
        where=where,
    )
