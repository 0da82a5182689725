"""Reader of your own questions with boxes in COCO's format as evidence (Lin et al. 2014; cocodataset.org).

    questions.jsonl                     {"image_id": 139, "question": "...", "answer": "no", "category": "tv"}
    annotations/instances_val2017.json  {"images": [{id, file_name}], "categories": [{id, name}],
                                         "annotations": [{id, image_id, category_id, bbox: [x, y, w, h]}]}
    val2017/000000000139.jpg
    templates.json                      {"*": "Where is the {category}?", "person": "Who?", "tie": null}

The evidence is all boxes of a `category` in the image, or those in `annotation_ids`; else unknown. Answers
may be left out. Templates, in place of questions.jsonl, ask one question for each category that an image
has; "*" is for categories without their own, null asks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from arr_coc.data.record import (
    Box,
    Example,
    Fields,
    FourNumbers,
    Id,
    Text,
    check_once,
    corners,
    find_file,
    find_image,
    get_meta,
    read_json,
    read_lines,
    records,
    take,
)
from arr_coc.data.registry import OwnAnswers, accepted_answers
from arr_coc.files.validation import bare, nearest, short


class _Entry(Fields):
    id: Id


class _ImageEntry(_Entry):
    file_name: Text
    width: Annotated[int, Field(ge=0)] | None = None
    height: Annotated[int, Field(ge=0)] | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        return (self.width, self.height) if self.width and self.height else None


class _Category(_Entry):
    name: Text


class _Annotation(_Entry):
    image_id: Id
    category_id: Id
    bbox: FourNumbers


_E = TypeVar("_E", bound=_Entry)


class _Question(Fields):
    id: Id | None = None
    image_id: Id
    question: Text
    category: Text | None = None
    annotation_ids: Annotated[list[Id], Field(min_length=1)] | None = None


# file of the user's templates, and its name for all other categories
TEMPLATES, EVERY = "templates.json", "*"
_FIELDS = (*_Question.model_fields, *OwnAnswers.model_fields)


@dataclass
class _Image:
    name: str
    size: tuple[int, int] | None  # in which the boxes are
    boxes: dict[str, tuple[str, Box]] = field(default_factory=dict)  # annotation id -> category, box


def read_coco(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """Return the questions of `questions_{split}.jsonl`, `questions.jsonl` or templates, with boxes as
    corners.

    Raises:
        ValueError: a missing file, image, field, category, annotation or box; an id that comes twice.
    """
    layout = (
        'put questions.jsonl (one {"image_id": 139, "question": "...", "category": "tv"} a line), '
        f"annotations/instances_{split}2017.json and {split}2017/000000000139.jpg into one folder"
    )
    names = (f"questions_{split}.jsonl", "questions.jsonl", TEMPLATES)
    lines_path = find_file(folder, names, f"{layout}; or {TEMPLATES} in place of questions.jsonl")
    stems = (f"instances_{split}2017", f"instances_{split}2014", f"instances_{split}", "annotations")
    path = find_file(
        folder, [f"{base}{stem}.json" for stem in stems for base in ("annotations/", "")], layout
    )
    images, categories = _boxes(path)
    under = (f"{split}2017", f"{split}2014", "images", f"images/{split}2017", split, "")
    if lines_path.name == TEMPLATES:
        return take(_from_templates(folder, under, images, _templates(lines_path, categories), path), limit)
    lines = enumerate(read_lines(lines_path), 1)
    examples = (_example(folder, under, record, images, categories, i, where) for i, (where, record) in lines)
    return take(examples, limit)


def _templates(path: Path, categories: set[str]) -> dict[str, str | None]:
    """Return the question of each category, or None; ValueError for no object of texts or an unknown
    category.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not content:
        raise ValueError(f'{path} is no object of templates: write {{"*": "Where is the {{category}}?"}}')
    for name, text in content.items():
        if name != EVERY and name not in categories:
            hint = nearest(name, categories)
            raise ValueError(f"{path}: category {short(name)} is not in the annotations: correct it{hint}")
        if text is not None and not (isinstance(text, str) and text.strip()):
            raise ValueError(
                f"{path}: template {short(text)} of {short(name)} is no text: write one, or null"
            )
    usual = content.get(EVERY)
    return {
        name: None if text is None else text.replace("{category}", name).strip()
        for name in sorted(categories)
        for text in (content.get(name, usual),)
    }


def _from_templates(
    folder: Path,
    under: tuple[str, ...],
    images: dict[str, _Image],
    templates: dict[str, str | None],
    path: Path,
) -> Iterator[Example]:
    """One question for each category that an image has, with all of its boxes."""
    for key, image in images.items():
        boxes: dict[str, list[Box]] = {}
        for kind, box in image.boxes.values():
            boxes.setdefault(kind, []).append(box)
        for kind, places in boxes.items():
            question, where = templates[kind], f"{path}, image {bare(key)}, {bare(kind)}"
            if question is not None:
                picture = find_image(folder, image.name, where, under)
                yield Example(
                    f"{key}:{kind}",
                    picture,
                    question,
                    (),
                    tuple(places),
                    {"category": kind},
                    where,
                    size=image.size,
                )


def _each_once(model: type[_E], path: Path, content: Any, key: str) -> Iterator[tuple[str, _E]]:
    """Yield the entries of a list of a COCO file with their places; ValueError for an id that comes twice."""
    places: dict[str, str] = {}
    for where, record in records(path, content, key):
        entry = model.of(record, where)
        check_once(entry.id, where, places)
        yield where, entry


def _boxes(path: Path) -> tuple[dict[str, _Image], set[str]]:
    content = read_json(path)
    images = {
        entry.id: _Image(entry.file_name, entry.size)
        for _, entry in _each_once(_ImageEntry, path, content, "images")
    }
    names = {category.id: category.name for _, category in _each_once(_Category, path, content, "categories")}
    for where, annotation in _each_once(_Annotation, path, content, "annotations"):
        image, kind = annotation.image_id, annotation.category_id
        if image not in images or kind not in names:
            missing = f"image {bare(image)}" if image not in images else f"category {bare(kind)}"
            raise ValueError(f"{where}: {missing} is not in the file: give the file as it is published")
        if 0 not in annotation.bbox[2:]:
            images[image].boxes[annotation.id] = names[kind], corners(annotation.bbox, "xywh", where)
    return images, set(names.values())


def _example(
    folder: Path,
    under: tuple[str, ...],
    record: dict[str, Any],
    images: dict[str, _Image],
    categories: set[str],
    i: int,
    where: str,
) -> Example:
    question = _Question.of(record, where)
    key = question.image_id
    if key not in images:
        raise ValueError(f"{where}: image_id {bare(key)} is not in the annotations: use one of their ids")
    return Example(
        id=str(i) if question.id is None else question.id,
        image=find_image(folder, images[key].name, where, under),
        question=question.question,
        answers=accepted_answers(record, where) if "answer" in record or "answers" in record else (),
        boxes=_evidence(question, images[key], categories, where),
        meta=get_meta(record, "category", *(key for key in record if key not in _FIELDS)),
        where=where,
        size=images[key].size,
    )


def _evidence(question: _Question, image: _Image, categories: set[str], where: str) -> tuple[Box, ...]:
    category, ids = question.category, question.annotation_ids
    if category is not None and ids is not None:
        raise ValueError(f"{where} has both 'category' and 'annotation_ids': keep the one that is meant")
    if ids is not None:
        missing = [each for each in ids if each not in image.boxes]
        if missing:
            raise ValueError(
                f"{where}: annotation {bare(missing[0])} is not one of image {bare(image.name)}: "
                "correct the id"
            )
        return tuple(image.boxes[each][1] for each in ids)
    if category is None:
        return ()
    if category not in categories:
        some = ", ".join(map(bare, sorted(categories)[:12]))
        hint = nearest(category, categories)
        raise ValueError(f"{where}: category {short(category)} is unknown: the annotations have {some}{hint}")
    boxes = tuple(box for kind, box in image.boxes.values() if kind == category)
    if not boxes:
        remedy = "correct it, or leave category out where the evidence is no box"
        raise ValueError(f"{where}: image {bare(image.name)} has no box of {short(category)}: {remedy}")
    return boxes
