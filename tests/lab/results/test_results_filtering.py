"""VTC-Bench's filter: scores of what all tokens answer and a shrunk image of as many tokens does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arr_coc.files.validation import validated
from arr_coc_lab.results.card import figures
from arr_coc_lab.results.files import read_results
from arr_coc_lab.results.lines import Summed
from arr_coc_lab.results.summary import read_summary, second_view, summarise
from arr_coc_lab.results.table import table

COMMITTED = Path(__file__).parents[3] / "runs" / "results" / "sparse.jsonl.gz"
SCORES = [  # full, ours, downsample at 64 and at 16, ours without a budget, and the tokens that it reads
    (1, 1, 0, 0, 1),
    (1, 0, 0, 0, 1),
    (1, 1, 1, 0, 0),
    (1, 0, 1, 1, 0),
    (0, 1, 0, 0, 1),
    (0.6, 1, 0.4, 0, 1),
]
NAMES = ("full", "arr-coc@64", "downsample@64", "downsample@16", "coc pool")


def records(rows: list[tuple[float, ...]] = SCORES, names: tuple[str, ...] = NAMES) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{i}",
            "image": f"test:{i}",
            "family": "value" if i % 2 else "title",
            "total": 256,
            "score": dict(zip(names, row, strict=True)),
            "tokens": {"full": 256, "arr-coc@64": 64, "downsample@64": 63, "coc pool": 16} if i < 4 else {},
            "recall": {"arr-coc@64": 0.1 * i},
        }
        for i, row in enumerate(rows)
    ]


def test_the_questions_that_are_left() -> None:
    summary = summarise({}, records(), vtc_filter=True)
    counts = summary["filter"]
    assert (counts["questions"], counts["answered"], counts["left"]) == (6, 5, {"64": 3, "16": 4})
    assert counts["left out"] == []
    methods = summary["methods"]
    assert (methods["arr-coc@64"]["n"], methods["arr-coc@64"]["score"]) == (3, round(2 / 3, 4))  # 0, 1, 5
    assert (methods["full"]["n"], methods["full"]["score"]) == (5, 0.92)
    assert methods["downsample@64"]["score"] == round(0.4 / 3, 4)
    assert methods["downsample@16"]["score"] == 0
    assert (methods["coc pool"]["n"], methods["coc pool"]["score"]) == (4, 0.75)  # it reads 16: 0, 1, 2, 5
    assert methods["arr-coc@64"]["recall"] == 0.2  # of questions 0, 1 and 5
    assert methods["arr-coc@64"]["families"] == {
        "title": {"score": 1, "n": 1},
        "value": {"score": 0.5, "n": 2},
    }
    assert methods["arr-coc@64"]["retained"] == round(2 / 2.6, 4)


def test_without_the_filter_nothing_is_different() -> None:
    summary = summarise({}, records())
    assert "filter" not in summary
    assert second_view(summarise({}, records([(1, 1)], ("full", "arr-coc@64")))) is None
    assert {figures["n"] for figures in summary["methods"].values()} == {6}
    assert "VTC" not in table(summary)


def test_the_second_view_is_the_filtered_summary() -> None:
    plain, filtered = summarise({}, records()), summarise({}, records(), vtc_filter=True)
    second = second_view(plain)
    assert second is not None
    assert {name: second[name] for name in filtered} == filtered
    assert table(second) == table(filtered) != table(plain)
    assert second_view(filtered) is None
    again = json.loads(json.dumps(plain))
    validated(Summed, again, "the summary")
    again["filtered"]["methods"]["full"]["score"] = 2
    with pytest.raises(ValueError, match="should be less than"):
        validated(Summed, again, "the summary")


def test_a_method_without_a_shrunk_image_is_left_out() -> None:
    rows = [(*row, 1) for row in SCORES]
    summary = summarise({}, records(rows, (*NAMES, "arr-coc@auto")), vtc_filter=True)
    assert summary["filter"]["left out"] == ["arr-coc@auto"]
    assert "arr-coc@auto" not in summary["methods"]
    assert "with no such image or question: arr-coc@auto" in table(summary)


def test_the_table_says_the_counts() -> None:
    text = table(summarise({}, records(), vtc_filter=True))
    assert "| method | tokens | questions |" in text
    assert "all tokens answer 5 of 6 questions" in text
    assert "fails, 3 with 64 tokens, 4 with 16 tokens" in text
    row = next(line for line in text.splitlines() if line.startswith("| **arr-coc@64**"))
    assert row.split(" | ")[2] == "3"


@pytest.mark.parametrize("missing", ["full", "downsample@64"])
def test_it_needs_both_sides(missing: str) -> None:
    names = tuple(name for name in ("full", "arr-coc@64", "downsample@64") if name != missing)
    with pytest.raises(ValueError, match="the run lacks one of them: evaluate with both"):
        summarise({}, records([(1, 1)], names), vtc_filter=True)


def test_nothing_left_is_said() -> None:
    with pytest.raises(ValueError, match="leaves none of 1 questions: all tokens answer 1"):
        summarise({}, records([(1, 1, 1)], ("full", "arr-coc@64", "downsample@64")), vtc_filter=True)


@pytest.mark.slow
def test_a_committed_run_by_hand() -> None:
    summary = read_summary(COMMITTED, vtc_filter=True)
    validated(Summed, summary, "the summary")
    rows = read_results(COMMITTED)[1]
    left = [r["score"] for r in rows if r["score"]["full"] >= 0.5 > r["score"]["downsample@64"]]
    own = summary["methods"]["arr-coc sparse@64"]
    assert own["n"] == len(left) == summary["filter"]["left"]["64"]
    assert own["score"] == round(sum(score["arr-coc sparse@64"] for score in left) / len(left), 4)
    assert summary["methods"]["full"]["score"] == 1
    assert summary["methods"]["downsample@64"]["score"] == 0


def test_a_summary_cannot_be_filtered(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"give the \.jsonl of its run"):
        read_summary(tmp_path / "run.json", vtc_filter=True)


def test_a_card_is_of_all_questions(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(summarise({}, records(), vtc_filter=True)))
    with pytest.raises(ValueError, match="filtered part of its questions"):
        figures(path, "")
