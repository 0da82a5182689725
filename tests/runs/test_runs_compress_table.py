"""The tables of gestalts: what is best in the time of a compressor, and which file says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scripts import imported, need

need("runs/compress_table.py")


@pytest.fixture(scope="module")
def tables() -> Iterator[Any]:
    with imported("runs/compress_table.py") as module:
        yield module


def row(score: float, ms: float, ratio: float = 2.0) -> dict[str, Any]:
    return {"score": score, "ttft_ms": ms, "ttft ratio": ratio}


def test_the_best_in_equal_time_is_no_slower_and_sees_no_question(tables: Any) -> None:
    methods = {
        "coc tower4": row(0.6, 100),
        "coc resize": row(0.2, 20),
        "downsample@400": row(0.4, 90),
        "coc conv4": row(0.7, 300),
        "arr-coc sparse@64": row(0.9, 50),
    }
    assert "`downsample@400`: 40.0%" in tables.equal_time("coc tower4", methods)
    alone = {name: methods[name] for name in ("coc tower4", "coc conv4", "arr-coc sparse@64")}
    assert "Nothing else" in tables.equal_time("coc tower4", alone)


@pytest.mark.parametrize(
    ("side", "tower", "file"),
    [(1024, "coc tower4", "compress-shrunk.json"), (2048, "coc tower16", "compress-shrunk-2048.json")],
)
def test_shrunk_pictures_stand_in_the_order_of_their_tokens(
    tables: Any, side: int, tower: str, file: str
) -> None:
    methods = {"full": row(0.9, 900), "downsample@1024": row(0.5, 90), "downsample@784": row(0.4, 70)}
    text = tables.shrunk_text({"header": {"size": side}, "methods": methods | {tower: row(0.6, 80)}})
    assert f"runs/results/{file}" in text
    assert f"`{tower}` 60.0% (2.00x)" in text
    assert text.index("784 tokens 40.0%") < text.index("1024 tokens 50.0%")


@pytest.mark.parametrize(("images", "too_few"), [(5, True), (30, False)])
def test_of_few_pages_it_says_what_intervals_are_worth(tables: Any, images: int, too_few: bool) -> None:
    methods = {
        "full": row(0.9, 900) | {"interval": (0.8, 1.0), "tokens": 9, "retained": 1.0, "ttft ratio": 1.0}
    }
    header = {"size": 1024, "machine": {"device": "cpu", "threads": 1}}
    summary = {"header": header, "questions": 40, "images": images, "timed": 2, "methods": methods}
    assert ("Of so few pages the intervals are too narrow." in tables.score_text(summary)) is too_few


def test_pages_of_a_browser(tables: Any) -> None:
    methods = {"full": row(0.1, 9), "coc tower4": row(0.2, 5)}
    text = tables.browser_text({"images": 3, "questions": 7, "methods": methods})
    assert "On 3 pages" in text
    assert "10.0% with all tokens and at most 20.0%" in text


def test_saccades_behind_each_gestalt(tables: Any) -> None:
    methods = {
        name: row(score, ms) | {"interval": (score - 0.1, score + 0.1)}
        for name, score, ms in (("arr-coc saccade tower16", 0.8, 2400), ("arr-coc saccade", 0.9, 1100))
    }
    text = tables.saccades_text({"header": {"size": 2048}, "images": 2, "questions": 9, "methods": methods})
    assert "2048 x 2048 px" in text
    assert text.index("`arr-coc saccade` 90.0% (80-100), 1,100 ms") < text.index("tower16` 80.0% (70-90)")
