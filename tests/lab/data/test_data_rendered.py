"""Rendered pages as a data set: questions with an answer and a place, in the order of the pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arr_coc.data import open_data
from arr_coc.train.recipe import make_recipe
from arr_coc.train.rows import open_rows

QUESTIONS = [
    ["value", "What is the total?", "£2.04", [[3, 4, 20, 30], [30, 4, 60, 30]]],
    ["global", "What kind of page is this?", "", []],
    ["unanswerable", "What is the tip?", "not on the page", []],
    ["yes-no", "Is it paid?", "no", [[3, 40, 20, 60]]],
]


def page(folder: Path, number: int, questions: Any = QUESTIONS, **changes: Any) -> Path:
    """A page as `arr-coc world` writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (96, 64)).save(folder / f"{number}.png")
    record = {"version": 1, "type": "receipt", "seed": number, "split": "test", "words": []}
    (folder / f"{number}.json").write_text(json.dumps(record | {"questions": questions} | changes))
    return folder.parent


def test_questions_with_an_answer_and_a_place_come_in_the_order_of_pages(tmp_path: Path) -> None:
    for number in (10, 9):
        page(tmp_path / "test", number)
    data, examples = open_data(f"rendered:{tmp_path}")
    total, paid, *others = examples
    assert (total.id, total.question, total.answers) == ("9-0", "What is the total?", ("£2.04",))
    assert total.boxes == ((3, 4, 20, 30), (30, 4, 60, 30))
    assert total.meta == {"family": "value", "type": "receipt"}
    assert total.image == tmp_path / "test" / "9.png"
    assert (paid.id, paid.where) == ("9-3", f"{tmp_path / 'test' / '9.json'}, question 4")
    assert [other.id for other in others] == ["10-0", "10-3"]
    assert data.metric is not None
    assert data.metric("£2.04", total.answers) == 1


def test_other_splits_are_folders_of_their_own(tmp_path: Path) -> None:
    page(tmp_path / "train", 0)
    assert len(list(open_data(f"rendered:{tmp_path}", "train")[1])) == 2
    with pytest.raises(
        ValueError, match=r"has no pages of split 'test': render some with `arr-coc world DIR"
    ):
        open_data(f"rendered:{tmp_path}")


def test_a_recipe_learns_on_them(tmp_path: Path) -> None:
    page(tmp_path / "train", 0)
    recipe = make_recipe(stage="relevance", steps=2, data=(f"rendered:{tmp_path}",), split="train")
    (item, _) = (open_rows(recipe)[number] for number in range(2))
    assert [(row.family, len(row.boxes or ())) for row in item.rows] == [("value", 2), ("yes-no", 1)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"questions": "none"}, "questions"),
        ({"questions": [["value", "What?", "a"]]}, "questions"),
        ({"questions": [["value", "What?", "a", [[5, 5, 5, 9]]]]}, "question 1: box .* has no area"),
        ({"questions": [["value", 7, "a", []]]}, "questions"),
        ({"type": None}, "type"),
    ],
)
def test_a_damaged_page_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    page(tmp_path / "test", 3, **changes)
    with pytest.raises(ValueError, match=message) as error:
        list(open_data(f"rendered:{tmp_path}")[1])
    assert "3.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_picture_and_another_file_are_named(tmp_path: Path) -> None:
    page(tmp_path / "test", 3)
    (tmp_path / "test" / "3.png").unlink()
    with pytest.raises(ValueError, match=r"question 1: image '3\.png' is not in"):
        list(open_data(f"rendered:{tmp_path}")[1])
    (tmp_path / "test" / "3.json").write_text("[]")
    with pytest.raises(ValueError, match="is no page: delete it, and render it again"):
        list(open_data(f"rendered:{tmp_path}")[1])
