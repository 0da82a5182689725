"""Rows of later methods join a result file only where they answer its own questions."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "runs" / "rows.py"))
with_rows, renamed, of_the_same_model = (
    SCRIPT[name] for name in ("with_rows", "renamed", "of_the_same_model")
)


def line(i: int, methods: dict[str, float], **more: Any) -> dict[str, Any]:
    fields = {
        "id": f"0.{i}",
        "image": "test:0",
        "question": f"What is {i}?",
        "answers": [str(i)],
        "family": "value",
    }
    own = {"score": methods, "tokens": dict.fromkeys(methods, 64), "said": dict.fromkeys(methods, "x")}
    return fields | {"total": 1024} | own | more


def head(*methods: str, base: str = "a") -> dict[str, Any]:
    return {
        "methods": list(methods),
        "kinds": dict.fromkeys(methods, "rival"),
        "weights": {"base": base},
        "command": "eval",
    }


def test_rows_join_their_questions_and_replace_those_that_were_there() -> None:
    old = [
        line(i, {"full": 1.0, "fastv@64": 0.0}, ms={"full": {"encode": 2.0}, "fastv@64": {"encode": 1.0}})
        for i in range(3)
    ]
    new = [
        line(i, {"fastv@64": 1.0, "fastv:3@64": 0.5}) for i in (2, 0, 1, 7)
    ]  # 7 is no question of the file
    header, records = with_rows(head("full", "fastv"), old, [("new", head("fastv", "fastv:3"), new)])
    assert [record["id"] for record in records] == ["0.0", "0.1", "0.2"]
    assert all(record["score"] == {"full": 1.0, "fastv@64": 1.0, "fastv:3@64": 0.5} for record in records)
    assert all(
        record["ms"] == {"full": {"encode": 2.0}} for record in records
    )  # the other's time is not its own
    assert header["methods"] == ["full", "fastv", "fastv:3"]
    assert header["joined"][0]["command"] == "eval"
    assert old[0]["score"] == {"full": 1.0, "fastv@64": 0.0}


def test_rows_of_parts_taught_again_keep_times_and_bring_their_weights() -> None:
    old = [
        line(0, {"full": 1.0, "coc conv4": 0.0}, ms={"full": {"encode": 2.0}, "coc conv4": {"encode": 1.0}})
    ]
    new = head("coc conv4")
    new["weights"] |= {"compressors": "new"}
    before = head("full", "coc conv4")
    before["weights"] |= {"compressors": "old"}
    header, (record,) = with_rows(before, old, [("new", new, [line(0, {"coc conv4": 1.0})])], retaught=True)
    assert record["score"] == {"full": 1.0, "coc conv4": 1.0}
    assert record["ms"] == {"full": {"encode": 2.0}, "coc conv4": {"encode": 1.0}}
    assert header["weights"] == {"base": "a", "compressors": "new"}


@pytest.mark.parametrize(
    ("header", "lines", "message"),
    [
        (head("m"), [line(0, {"m@64": 1.0})], "m@64 has 1 of 2 questions"),
        (head("m", base="b"), [], "other weights of the base model"),
        (
            head("m"),
            [line(i, {"m@64": 1.0}, question="Another?") for i in range(2)],
            "question 0.0 has another question",
        ),
        (head("m"), [line(i, {"m@64": 1.0}, answers=["5"]) for i in range(2)], "another answers"),
        (head("m"), [line(i, {"m@64": 1.0}, image="test:1") for i in range(2)], "another image"),
    ],
)
def test_what_was_measured_on_something_else_is_refused(header: dict, lines: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_rows(head("full"), [line(i, {"full": 1.0}) for i in range(2)], [("new", header, lines)])


def test_a_method_is_renamed_with_all_it_has() -> None:
    record = renamed(
        line(0, {"full": 1.0, "prumerge+@64": 0.0, "prumerge+": 1.0}), {"prumerge+": "prumerge+:joined"}
    )
    assert record["score"] == {"full": 1.0, "prumerge+:joined@64": 0.0, "prumerge+:joined": 1.0}
    assert record["tokens"].keys() == record["score"].keys()


def test_a_witness_shows_that_two_prints_are_of_one_model() -> None:
    old = [line(i, {"full": 1.0, "scope@64": 0.0}) for i in range(2)]
    witness = [line(i, {"full": 1.0, "fastv@64": 0.0}) for i in range(5)]
    header = of_the_same_model(head("full", base="old"), old, (head("full", base="new"), witness))
    assert header["weights"]["base"] == "new"
    assert header["print before"] == {"base": "old", "same answers": 2, "methods": ["full"]}
    other = [line(i, {"full": 1.0}, said={"full": "y"}) for i in range(5)]
    for lines, message in (
        (other, "question 0.0: the witness has another answer of full"),
        (witness[1:], "not all"),
    ):
        with pytest.raises(ValueError, match=message):
            of_the_same_model(head("full", base="old"), old, (head("full", base="new"), lines))
