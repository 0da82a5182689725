"""Reader of pages that `arr-coc world` rendered, with their questions, answers and evidence boxes.

    test/0.png
    test/0.json    {"type": "receipt", "questions": [["value", "What is due?", "£2.04", [[3, 4, 9, 9]]]]}

A question is [kind, text, answer, boxes]; those without an answer or boxes are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from arr_coc.data.record import (
    Example,
    Fields,
    FourNumbers,
    NoSuchFile,
    Text,
    check_folder,
    check_inside,
    corners,
    find_image,
    read_json,
    take,
)


class _Page(Fields):
    type: Text
    questions: list[tuple[Text, Text, str, Annotated[list[FourNumbers], Field(max_length=4096)]]]


def read_rendered(folder: Path, split: str = "test", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of the pages in `folder/split`, by page number; a question's kind is its family.

    Raises ValueError if there is no page, an image is missing, or a page's file is damaged.
    """
    check_folder(folder)
    places = [place for place in (folder / split).glob("*.json") if place.stem.isdecimal()]
    if not places:
        remedy = f"render some with `arr-coc world DIR --split {split}`, and give DIR"
        raise NoSuchFile(f"{folder} has no pages of split {split!r}: {remedy}")
    check_inside(folder / split, folder)
    return take(_questions(folder / split, sorted(places, key=lambda place: int(place.stem))), limit)


def _questions(folder: Path, places: list[Path]) -> Iterator[Example]:
    for place in places:
        check_inside(place, folder)
        content = read_json(place)
        if not isinstance(content, dict):
            raise ValueError(f"{place} is no page: delete it, and render it again with `arr-coc world`")
        page = _Page.of(content, str(place))
        for number, (kind, text, answer, boxes) in enumerate(page.questions):
            where = f"{place}, question {number + 1}"
            if answer.strip() and boxes:
                yield Example(
                    id=f"{place.stem}-{number}",
                    image=find_image(folder, f"{place.stem}.png", where),
                    question=text,
                    answers=(answer,),
                    boxes=tuple(corners(box, "xyxy", where) for box in boxes),
                    meta={"family": kind, "type": page.type},
                    where=where,
                )
