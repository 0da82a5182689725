"""The tables of follow-up questions: which there are, in which order, and which columns they have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import imported, need

need("runs/follow_table.py")


@pytest.fixture(scope="module")
def tables() -> Iterator[Any]:
    with imported("runs/follow_table.py") as module:
        yield module


def rows(setting: str, way: str, **figures: list[float]) -> list[dict[str, Any]]:
    return [
        {"setting": setting, "way": way, "turn": turn + 1}
        | {name.replace("_", " "): values[turn] for name, values in figures.items() if len(values) > turn}
        for turn in range(3)
    ]


def result(shape: str, *groups: list[dict[str, Any]], pages: int = 0, **more: Any) -> dict[str, Any]:
    facts = {"shape": shape, "image": [64, 32], "pages": pages, "rounds": 2, "device": "a chip"}
    return {"circumstances": facts, "rows": [row for group in groups for row in group]} | more


SESSION = result(
    "bundled",
    rows("session", "stock", retained=[1, 1, 1], score=[1, 0.5, 0.5], flop_cost=[1, 0.1, 0.1]),
    rows("session", "prune@9", retained=[0.5, 1, 1], score=[0.5, 0.5, 0.5], flop_cost=[0.5, 0.2, 0.3]),
    pages=7,
)
SERVED = result(
    "bundled",
    rows("server", "stock", retained=[1, 1, 1], score=[1, 0.5, 0.5], cached=[0, 0.9, 0.8], tokens=[99] * 3)
    + rows(
        "server", "sparse@9 last", retained=[1, 0, 0], score=[0.5, 0, 0], cached=[0, 0.1, 0.1], tokens=[9] * 3
    ),
    pages=5,
    **{
        "questions 2 to 5": {
            "server sparse@9 last": {"score": 0.25, "retained": 0.5, "retained_range": [0.4, 0.6]}
        }
    },
    **{"break-even": [{"setting": "server", "way": "sparse@9 last", "time": {"stock from": 3}}]},
)
for _row, _ms, _changed in zip(
    SERVED["rows"], (900, 40, 60, 200, 120, 120), (None,) * 4 + (1.0, 0.5), strict=True
):
    _row |= {"ms": _ms, "ratio": 1.0, "cost": _ms / 900} | ({} if _changed is None else {"changed": _changed})
SERVED["circumstances"]["others"] = 0.42
RANDOM = result("mid", rows("server", "stock", cached=[0, 0.9, 0.9], ratio=[1, 1, 1], cost=[1, 0.1, 0.1]))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_table_per_shape_and_setting_with_the_facts_of_its_own_file(tables: Any) -> None:
    text = tables.follow_text([RANDOM, SERVED, SESSION])
    titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith("|")]
    assert titles == [
        "The bundled model, 64x32 px, each question by itself, "
        "7 pages of five questions, times of 2 rounds (a chip):",
        "The bundled model, 64x32 px, a vLLM server, each with the conversation before it, 5 pages of five "
        "questions, times of 2 rounds (a chip); stock's first token came after 900 ms at question 1, after "
        "50 ms at 2 to 5; other programs took 42% of the cores meanwhile:",
        "A middle shape (8 layers of 512), random weights, 64x32 px, a vLLM server, "
        "each with the conversation before it, times of 2 rounds (a chip):",
    ]


def test_a_servers_columns(tables: Any) -> None:
    head, line, stock, last = tables.follow_text([SERVED]).splitlines()[2:]
    assert len(cells(head)) == len(cells(line)) == len(cells(stock)) == len(cells(last))
    named = dict(zip(cells(head)[5:], cells(last)[5:], strict=True))
    assert named == {
        "visual tokens": "9",
        "found in the prefix cache, 2 to 5": "10%",
        "image read anew, 2 to 5": "50% to 100%",
        "time, question 1": "22.2%",
        "2 to 5": "13.3%",
        "time, 2 to 5, x stock's": "1.00",
        "stock cheaper from": "question 3 by time",
    }
    assert cells(last)[:5] == ["sparse@9 last", "50.0%", "100.0%", "25.0%", "50.0% (40.0% to 60.0%)"]
    assert cells(stock)[6:8] == ["80% to 90%", "-"]


def test_what_nobody_measured_has_no_column(tables: Any) -> None:
    head, _, stock, prune = tables.follow_text([SESSION]).splitlines()[2:]
    assert cells(head)[5:] == ["operations, question 1", "2 to 5", "stock cheaper from"]
    assert cells(prune) == ["prune@9", "50.0%", "50.0%", "50.0%", "100.0%", "50.0%", "20.0% to 30.0%", "-"]
    assert cells(stock)[5:] == ["100.0%", "10.0%", "-"]


def test_the_page_about_serving(tables: Any, tmp_path: Path) -> None:
    assert tables.follow_blocks(tmp_path) == {}
    (tmp_path / "follow.json").write_text(json.dumps(SESSION))
    assert tables.follow_blocks(tmp_path) == {"follow": tables.follow_text([SESSION])}
    stock = {"server stock": {"score": 0.5, "retained": 1.0}}
    served = SERVED | {"questions 2 to 5": SERVED["questions 2 to 5"] | stock}
    (tmp_path / "follow-served.json").write_text(json.dumps(served))
    blocks = tables.follow_blocks(tmp_path)
    assert blocks["follow"] == tables.follow_text([SESSION, served])
    head, _, first, last, _, text = blocks["served"].splitlines()
    assert len(cells(head)) == len(cells(first)) == len(cells(last))
    assert cells(first)[1:5] == ["99", "100.0%", "50.0%", "100.0%"]
    assert cells(last) == ["sparse@9 last", "9", "50.0%", "25.0%", "50.0%", "50% to 100%", "10%", "1.0"]
    assert text.endswith("sparse@9 last from question 3 on. Other programs took 42% of the cores meanwhile.")
