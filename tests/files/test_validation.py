"""Values from files: the first wrong field is named with its value, in one line."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from arr_coc.files.validation import LONGEST, short, validated


class Line(BaseModel):
    model_config = ConfigDict(strict=True)
    id: str = Field(min_length=1)
    score: dict[str, float] = {}
    kind: Literal["a", "b"] = "a"
    box: tuple[int, int] = (0, 0)


def test_what_is_right_is_read() -> None:
    line = validated(Line, json.loads('{"id": "1", "score": {"x": 1}, "more": []}'), "here")
    assert (line.id, line.score, line.kind) == ("1", {"x": 1.0}, "a")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "a.jsonl, line 3: 'id' is missing: add it"),
        ({"id": 3}, "a.jsonl, line 3: 'id' is 3: it should be a valid string"),
        ({"id": ""}, "a.jsonl, line 3: 'id' is '': it should have at least 1 character"),
        (
            {"id": "1", "score": {"x": "1"}},
            "a.jsonl, line 3: 'score'['x'] is '1': it should be a valid number",
        ),
        ({"id": "1", "box": 3}, "a.jsonl, line 3: 'box' is 3: it should be a valid list"),
        ({"id": "1", "kind": "c"}, "a.jsonl, line 3: 'kind' is 'c': it should be 'a' or 'b'"),
        (
            {"id": 1, "score": 2},  # the first of several
            "a.jsonl, line 3: 'id' is 1: it should be a valid string",
        ),
    ],
)
def test_what_is_wrong_is_named(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match="line 3") as error:
        validated(Line, value, "a.jsonl, line 3")
    assert str(error.value) == message


def test_what_is_no_object_at_all() -> None:
    with pytest.raises(ValueError, match=r"^here: it should be an object$"):
        validated(Line, [1], "here")


def test_messages_stay_one_short_line() -> None:
    with pytest.raises(ValueError, match="'id' is") as error:
        validated(Line, {"id": {"a\nb": "x" * 10_000}}, "here")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < LONGEST + 60
    assert short([1]) == "[1]"
    assert len(short("x" * 1000)) <= LONGEST
