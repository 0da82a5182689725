"""The strategy benchmark: its wordings and pictures, that the right map leads, and that what is kept follows
the gates."""

from __future__ import annotations

import json
from statistics import fmean

import pytest

from scripts import ROOT, imported, need

need("runs/strategies.py")
with imported("runs/strategies.py") as strategies:
    from strategies_table import maps_table, strategies_table

RESULT = ROOT / "runs" / "results" / "strategies.json"


def test_five_kinds_in_a_hundred_wordings_and_more() -> None:
    assert len(strategies.WORDINGS) == 5
    assert all(len(set(some)) == len(some) >= 20 for some in strategies.WORDINGS.values())
    assert sum(map(len, strategies.WORDINGS.values())) >= 100


def test_every_wording_is_asked_of_several_pictures_with_evidence() -> None:
    cases = list(strategies.cases(1))
    for kind, wordings in strategies.WORDINGS.items():
        own = [case for case in cases if case.kind == kind]
        assert {case.wording for case in own} == set(wordings)
        assert "{" not in "".join(case.question for case in own)
        assert len({id(case.page) for case in own}) >= (1 if kind == "place" else 2)
        for case in own:
            assert bool(case.evidence) == (kind != "overview")


@pytest.fixture(scope="module")
def sample():
    """Every 31st case of the benchmark, with what was kept."""
    return strategies.measure(list(strategies.cases(1))[::31])


def test_the_right_map_leads(sample) -> None:
    rows, _ = sample
    assert {row["kind"] for row in rows} == set(strategies.RIGHT)
    led = [
        row["leads"] == strategies.RIGHT[row["kind"]]
        for row in rows
        if row["kind"] in ("fact", "place", "unusual")
    ]
    assert fmean(led) >= 0.95


def test_what_is_kept_follows_the_gates(sample) -> None:
    """Every gate moves: with gates that are the mean of all questions other cells would be kept."""
    rows, kept = sample
    own = [strategies.iou(one.mask()[0], strategies.with_gates(one, one.weights)) for one in kept]
    assert fmean(own) > 0.97, "or the comparison itself is off"
    by_kind = strategies.summary(rows, strategies.overlap(kept))
    assert fmean(kind["overlap with fixed gates"] for kind in by_kind.values()) < 0.9
    for name in strategies.MAPS:
        gates = [kind["gates"][name] for kind in by_kind.values()]
        assert max(gates) > 0.4 > 0.2 > min(gates), name


def test_the_result_file_is_of_this_benchmark() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert set(result["kinds"]) == set(strategies.RIGHT)
    led = {kind: row["right map leads"] for kind, row in result["kinds"].items()}
    assert min(led["fact"], led["place"], led["unusual"]) > 0.95
    assert result["kinds"]["dense"]["kept"] > 0.8, "led by what is rare and what is found, not by information"
    assert result["overlap with fixed gates"] < 0.9
    for kind, row in result["kinds"].items():
        assert row["wordings"] == len(strategies.WORDINGS["unusual" if kind == "busy" else kind])
    rows = [line for line in strategies_table(result).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(strategies.RIGHT)
    assert len(maps_table(result).splitlines()) == 2 + len(strategies.WAYS)
