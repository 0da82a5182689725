"""Boxes in COCO's format as the evidence of your own questions (Lin et al. 2014; cocodataset.org).

    questions.jsonl                     {"image_id": 139, "question": "...", "answer": "no", "category": "tv"}
    annotations/instances_val2017.json  {"images": [{id, file_name}], "categories": [{id, name}],
                                         "annotations": [{id, image_id, category_id, bbox: [x, y, w, h]}]}
    val2017/000000000139.jpg

A line of questions.jsonl says which boxes answer it: `category`, a name for all boxes of that kind in the
image, or `annotation_ids`, a list of those that count; with neither, the evidence is unknown. `answer` or
`answers` may be left out. COCO asks no questions, and none are made up here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arr_coc.data.lines import get_own_answers
from arr_coc.data.record import (
    Box,
    Example,
    find_file,
    find_image,
    get_boxes,
    get_id,
    get_meta,
    get_text,
    read_json,
    read_lines,
    records,
    take,
)

_FIELDS = ("id", "image_id", "question", "answer", "answers", "category", "annotation_ids")


@dataclass
class _Image:
    name: str
    boxes: dict[str, tuple[str, Box]] = field(default_factory=dict)  # annotation id -> category, box


def read_coco(folder: Path, split: str = "val", limit: int | None = None) -> Iterator[Example]:
    """The questions of `questions_{split}.jsonl` or `questions.jsonl` in file order, with boxes as corners.

    Boxes of crowds count; boxes without area, of which COCO has a few, are left out.

    Raises:
        ValueError: a missing file, image, field, category, annotation or box.
    """
    layout = (
        'put questions.jsonl (one {"image_id": 139, "question": "...", "category": "tv"} a line), '
        f"annotations/instances_{split}2017.json and {split}2017/000000000139.jpg into one folder"
    )
    asked = find_file(folder, (f"questions_{split}.jsonl", "questions.jsonl"), layout)
    stems = (f"instances_{split}2017", f"instances_{split}2014", f"instances_{split}", "annotations")
    path = find_file(
        folder, [f"{base}{stem}.json" for stem in stems for base in ("annotations/", "")], layout
    )
    images, categories = _boxes(path)
    under = (f"{split}2017", f"{split}2014", "images", f"images/{split}2017", split, "")
    lines = enumerate(read_lines(asked), 1)
    examples = (_example(folder, under, record, images, categories, i, where) for i, (where, record) in lines)
    return take(examples, limit)


def _boxes(path: Path) -> tuple[dict[str, _Image], set[str]]:
    """The images of a COCO file with their boxes, and the names of all categories."""
    content = read_json(path)
    images = {
        get_id(record, "id", where): _Image(get_text(record, "file_name", where))
        for where, record in records(path, content, "images")
    }
    names = {
        get_id(record, "id", where): get_text(record, "name", where)
        for where, record in records(path, content, "categories")
    }
    for where, record in records(path, content, "annotations"):
        image, kind = get_id(record, "image_id", where), get_id(record, "category_id", where)
        if image not in images or kind not in names:
            missing = f"image {image}" if image not in images else f"category {kind}"
            raise ValueError(f"{where}: {missing} is not in the file: give the file as it is published")
        box = record.get("bbox")
        if isinstance(box, list) and len(box) == 4 and 0 in box[2:]:
            continue
        images[image].boxes[get_id(record, "id", where)] = names[kind], get_boxes([box], "xywh", where)[0]
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
    key = get_id(record, "image_id", where)
    if key not in images:
        raise ValueError(f"{where}: image_id {key} is not in the annotations: use one of their ids")
    return Example(
        id=get_id(record, "id", where) if "id" in record else str(i),
        image=find_image(folder, images[key].name, where, under),
        question=get_text(record, "question", where),
        answers=get_own_answers(record, where) if "answer" in record or "answers" in record else (),
        boxes=_evidence(record, images[key], categories, where),
        meta=get_meta(record, "category", *(key for key in record if key not in _FIELDS)),
        where=where,
    )


def _evidence(record: dict[str, Any], image: _Image, categories: set[str], where: str) -> tuple[Box, ...]:
    if "category" in record and "annotation_ids" in record:
        raise ValueError(f"{where} has both 'category' and 'annotation_ids': keep the one that is meant")
    if "annotation_ids" in record:
        ids = record["annotation_ids"]
        if not isinstance(ids, list) or not ids:
            raise ValueError(f"{where}: 'annotation_ids' is {ids!r}: write a list of ids, or leave it out")
        wanted = [get_id({"annotation_ids": each}, "annotation_ids", where) for each in ids]
        missing = [each for each in wanted if each not in image.boxes]
        if missing:
            raise ValueError(
                f"{where}: annotation {missing[0]} is not one of image {image.name}: correct the id"
            )
        return tuple(image.boxes[each][1] for each in wanted)
    if "category" not in record:
        return ()
    category = get_text(record, "category", where)
    if category not in categories:
        some = ", ".join(sorted(categories)[:12])
        raise ValueError(f"{where}: category {category!r} is unknown: the annotations have {some}")
    found = tuple(box for kind, box in image.boxes.values() if kind == category)
    if not found:
        remedy = "correct it, or leave category out where the evidence is no box"
        raise ValueError(f"{where}: image {image.name} has no box of {category!r}: {remedy}")
    return found
