"""What tells answerable questions apart: the regression on wordings, and sums weighed by confidence."""

from __future__ import annotations

import json

import pytest
import torch
from PIL import Image

from arr_coc.guide.coupling import Calibration, Coupling, GuideSource
from arr_coc.relevance.lines import LineHead
from arr_coc.relevance.ocr import OcrSource
from arr_coc.relevance.source import PRIOR
from arr_coc_lab.evaluate.sources import RealSample
from printed_lines import PAGE, vectors
from scripts import ROOT, imported, need

need("runs/presence.py")
with imported("runs/presence.py") as presence:
    pass

PLAIN = Calibration(1.0)
CELLS = 1024


def test_a_regression_on_wordings_finds_a_wording_and_nothing_in_chance() -> None:
    torch.manual_seed(0)
    rows, labels = torch.randn(600, 8), torch.rand(600) < 0.8
    rows[:, 3] += labels.float() * 2  # the wording of those with an answer
    score = presence.fitted(rows[:400], labels[:400], 0.01)
    scores, yes = score(rows[400:]), labels[400:]
    assert presence.auc(scores[yes].tolist(), scores[~yes].tolist()) > 0.85
    blind = presence.fitted(torch.randn(400, 8), labels[:400], 0.01)(torch.randn(200, 8))
    assert presence.auc(blind[yes].tolist(), blind[~yes].tolist()) == pytest.approx(0.5, abs=0.15)


def one(guide: int, ocr: int, evidence: int, sure: float = 0.9, unsure: float = 0.0) -> presence.Read:
    """A question of which guide and ocr find a cell each."""
    maps = [torch.full((32, 32), PRIOR), torch.full((32, 32), PRIOR)]
    for cells, at, peak in zip(maps, (guide, ocr), (2.0, 4.0), strict=True):
        cells.view(-1)[at : at + 64] = peak
    mask = torch.zeros(CELLS, dtype=torch.bool)
    mask[evidence : evidence + 64] = True
    return presence.Read(Coupling(maps[0], sure), Coupling(maps[1], unsure), mask)


def test_a_sum_weighed_by_confidence_goes_by_whoever_is_sure() -> None:
    unsure = [one(0, 512, 0, unsure=0.01)]  # the guide is right, and the OCR louder
    table = presence.sums(unsure, PLAIN, PLAIN)
    assert {name: way["64"] for name, way in table.items()} == {
        name: float(name != "plain") for name in table
    }
    assert table["plain"]["128"] == 1.0
    silent = presence.sums([one(0, 512, 0, unsure=0.0)], PLAIN, PLAIN)
    assert {way["64"] for way in silent.values()} == {1.0}, "nothing to go by counts nothing"


def test_faded_odds_lie_between_what_is_said_and_nothing() -> None:
    odds = torch.tensor([-6.0, PRIOR, 3.0])
    assert torch.allclose(presence.faded(odds, 1.0, 1.0), odds - PRIOR, atol=1e-3)
    assert torch.allclose(presence.faded(odds, 0.0, 1.0), torch.zeros(3), atol=1e-3)
    half = presence.faded(odds, 0.5, 1.0)
    assert torch.all((half.abs() < (odds - PRIOR).abs()) | (half.abs() < 1e-3))


def test_questions_are_told_apart_by_whose_they_are() -> None:
    about = [one(0, 0, 0, sure=sure) for sure in (0.9, 0.8)]
    vain = [row._replace(evidence=None) for row in (one(0, 0, 0, sure=0.1), one(0, 0, 0, sure=0.85))]
    foreign = [row._replace(evidence=None, elsewhere=True) for row in (one(0, 0, 0, sure=0.95),)]
    facts = presence.told([*about, *vain, *foreign], lambda row: row.guide.confidence)
    assert facts == {"auc": 0.75, "auc elsewhere": 0.0}
    assert presence.told([*about, *vain], lambda row: row.guide.confidence) == {"auc": 0.75}


def test_pictures_are_asked_their_own_questions_and_those_of_another() -> None:
    boxes = ((0.0, 0.0, 64.0, 64.0),)
    samples = [
        RealSample(
            name,
            "document",
            lambda: Image.new("RGB", (800, 600), "white"),
            ((f"What is the total of {name}?", "value", boxes), ("Is there a dog?", "unanswerable", ())),
            PAGE,
            name,
        )
        for name in ("a", "b")
    ]
    sources = GuideSource(), OcrSource(lambda pixels: PAGE, vectors, LineHead())
    rows = presence.read(sources, samples)
    kinds = [(row.evidence is not None, row.elsewhere) for row in rows]
    assert kinds == [(True, False), (False, False), (False, True)] * 2


def test_the_committed_figures_are_those_of_the_log() -> None:
    facts = json.loads((ROOT / "runs" / "results" / "presence.json").read_text())
    log = (ROOT / "docs" / "log" / "2026-11-28.md").read_text()
    for name in ("guide", "ocr", "guide+ocr"):
        own = facts["sources"][name]
        assert f"{name} {own['auc']:.2f} and {own['auc elsewhere']:.2f}" in log
    for budget in ("64", "128", "273"):
        weighed = [
            way[budget] for name, way in facts["sums"].items() if name != "plain" and "alone" not in name
        ]
        assert f"{min(weighed):.3f} to {max(weighed):.3f}" in log
        assert f"{facts['sums']['plain'][budget]:.3f}" in log
    assert f"AUC of {facts['wording']['auc, penalty 0.001']:.2f} (validation split" in log
