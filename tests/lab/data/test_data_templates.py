"""COCO's own annotations with a question template for each category."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arr_coc.data import open_data


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """Two images with three boxes of two categories."""
    (tmp_path / "annotations").mkdir()
    content = {
        "images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}],
        "categories": [{"id": 7, "name": "cat"}, {"id": 8, "name": "dog"}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 7, "bbox": [0, 0, 4, 5]},
            {"id": 2, "image_id": 1, "category_id": 7, "bbox": [10, 0, 4, 5]},
            {"id": 3, "image_id": 2, "category_id": 8, "bbox": [1, 2, 3, 4]},
        ],
    }
    (tmp_path / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    for name in "ab":
        Image.new("RGB", (32, 32)).save(tmp_path / f"{name}.png")
    return tmp_path


def read(folder: Path, templates: Any) -> list[Any]:
    (folder / "templates.json").write_text(json.dumps(templates))
    return list(open_data(f"coco:{folder}")[1])


def test_each_category_of_an_image_is_asked_for_once_with_all_of_its_boxes(coco: Path) -> None:
    first, second = read(coco, {"*": "Where is the {category}?", "dog": "Who barks?"})
    assert (first.question, first.boxes) == ("Where is the cat?", ((0, 0, 4, 5), (10, 0, 14, 5)))
    assert (second.question, second.boxes, second.image.name) == ("Who barks?", ((1, 2, 4, 6),), "b.png")
    assert first.meta == {"category": "cat"}
    assert first.answers == ()


def test_null_and_no_template_ask_nothing(coco: Path) -> None:
    assert [e.question for e in read(coco, {"*": "A {category}?", "cat": None})] == ["A dog?"]
    assert [e.question for e in read(coco, {"cat": "A cat?"})] == ["A cat?"]


def test_questions_of_ones_own_come_first(coco: Path) -> None:
    (coco / "questions.jsonl").write_text('{"image_id": 2, "question": "Which?"}\n')
    assert [e.question for e in read(coco, {"*": "A {category}?"})] == ["Which?"]


@pytest.mark.parametrize(
    ("templates", "reason"),
    [
        ([], "no object of templates"),
        ({"caat": "Where?"}, "category 'caat' is not in the annotations: correct it"),
        ({"cat": 3}, "template 3 of 'cat' is no text"),
    ],
)
def test_bad_templates_are_named(coco: Path, templates: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(coco, templates)
