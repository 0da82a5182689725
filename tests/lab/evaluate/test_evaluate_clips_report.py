"""Figures and the table of a measurement on clips, on scores made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arr_coc_lab.evaluate.clips import KeptOfClip, ScoredClip
from arr_coc_lab.evaluate.clips_report import by_clip, summarise, table, write_summary
from disks import contents, small_files


def scored(clip: str, kind: str = "value", **recalls: float) -> ScoredClip:
    names = {"ours": "arr-coc", "evs": "evs", "coarse": "fewer pixels, readable"}
    return ScoredClip(
        clip,
        kind,
        {
            names[name]: {"25 %": KeptOfClip(recall, float(recall == 1), recall / 2, 16, 3)}
            for name, recall in recalls.items()
        },
    )


SCORED = [
    scored("one", ours=1.0, evs=0.5, coarse=0.0),
    scored("one", "count", ours=0.5, evs=0.5, coarse=0.0),
    scored("one", ours=0.0, evs=0.5, coarse=0.0),
    scored("two", ours=1.0, evs=0.0, coarse=1.0),
    ScoredClip("two", "global"),
]


def test_a_clip_counts_once():
    assert by_clip(SCORED[:4], "arr-coc", "25 %", "recall") == {"one": 0.5, "two": 1.0}
    summary = summarise(SCORED)
    assert (summary["clips"], summary["questions"], summary["questions without evidence"]) == (2, 4, 1)
    assert summary["budgets"] == ["25 %"]
    ours = summary["methods"]["arr-coc"]["25 %"]
    assert ours["recall"] == 0.75
    assert ours["recall interval"] == [0.5, 1.0]  # two clips: both of one, or one of each
    assert ours["whole"] == pytest.approx((1 / 3 + 1) / 2)
    assert ours["strict"] == 0.375
    assert (ours["tokens"], ours["steps"]) == (16, 3)
    assert ours["kinds"] == {
        "count": {"questions": 1, "recall": 0.5, "whole": 0.0, "strict": 0.25},
        "value": {"questions": 3, "recall": 0.75, "whole": 0.75, "strict": 0.375},
    }


@pytest.mark.slow
def test_differences_are_paired():
    summary = summarise(SCORED, reference="arr-coc")
    assert summary["reference"] == "arr-coc"
    assert "recall behind" not in summary["methods"]["arr-coc"]["25 %"]
    evs = summary["methods"]["evs"]["25 %"]
    assert evs["recall behind"] == 0.5  # 0 in the one clip, 1 in the other
    assert evs["recall behind interval"] == [0.0, 1.0]


def test_every_method_is_described():
    described = summarise(SCORED, kinds={"arr-coc": "variant"})["described"]
    assert described["arr-coc"] == {"kind": "variant", "label": "arr-coc"}
    assert described["evs"]["kind"] == "rival"
    assert described["evs"]["paper"] == "Bagrov et al. 2025, arXiv 2510.14624"
    assert described["evs"]["needs"] == ["features"]
    coarse = described["fewer pixels, readable"]
    assert (coarse["kind"], coarse["label"]) == ("null", "all frames at fewer pixels, readable")


@pytest.mark.slow
def test_the_table_reads_the_summary_alone(tmp_path):
    path = tmp_path / "clips.json"
    write_summary(summarise(SCORED, reference="arr-coc"), path)
    summary = json.loads(path.read_text(encoding="utf-8"))
    assert summary == summarise(SCORED, reference="arr-coc")
    assert table(summary, ["recall"]).splitlines() == [
        "| method | 25 % recall |",
        "|---|--:|",
        "| **arr-coc** | **75.0 (50.0-100.0)** |",
        "| evs | 25.0 (0.0-50.0) |",
        "| fewer pixels, readable | 50.0 (0.0-100.0) |",
    ]
    assert table(summary, kind="count").splitlines()[2:] == [
        "| **arr-coc** | **50.0** | **0.0** |",
        "| evs | 50.0 | 0.0 |",
        "| fewer pixels, readable | 0.0 | 0.0 |",
    ]


@pytest.mark.slow
def test_exceptions():
    with pytest.raises(ValueError, match="none of 1 questions has evidence"):
        summarise(SCORED[-1:])
    with pytest.raises(ValueError, match="reference 'mine' was not measured: use one of arr-coc, evs"):
        summarise(SCORED, reference="mine")
    with pytest.raises(ValueError, match="figure 'score' is unknown: use some of recall, whole, strict"):
        table(summarise(SCORED), ["score"])
    with pytest.raises(ValueError, match="kind 'colour' was not measured: use one of count, value"):
        table(summarise(SCORED), kind="colour")


def test_a_full_disk_leaves_the_older_summary(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"old")
    with small_files(), pytest.raises(OSError, match="File too large"):
        write_summary(summarise(SCORED, reference="arr-coc"), tmp_path / "a.json")
    assert contents(tmp_path) == {"a.json": b"old"}
