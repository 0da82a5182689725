"""The calibration of coverage: the rule of the quantile, and what it promises on questions drawn alike."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
import torch
from PIL import Image

from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.relevance.coverage import depths, rule_of
from arr_coc.relevance.lines import PrintedLine
from arr_coc_lab.evaluate.coverage import (
    FAMILIES,
    SHARES,
    AskedQuestion,
    compare,
    conformal_quantile,
    fit,
    open_source,
    questions_of,
    report,
)
from arr_coc_lab.evaluate.sources import RealSample


def drawn(count: int, seed: int, cells: int = 60) -> list[AskedQuestion]:
    """Questions whose evidence is hard to find where confidence is low; a tenth have none."""
    draws = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        logits = torch.randn(cells, generator=draws)
        confidence = float(torch.rand((), generator=draws))
        evidence = torch.zeros(cells, dtype=torch.bool)
        if number % 10:
            noise = (1.5 - confidence) * torch.randn(cells, generator=draws)
            evidence[(logits + noise).topk(2).indices] = True
        rows.append(
            AskedQuestion(f"{number // 5}.png", "value", Coupling(logits, confidence), logits, evidence)
        )
    return rows


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [
        (9, 0.9, 9),
        (8, 0.9, None),
        (10, 0.9, 10),
        (19, 0.9, 18),
        (19, 0.95, 19),
        (18, 0.95, None),
        (99, 0.8, 80),
    ],
)
def test_the_quantile_has_one_question_more_than_were_seen(
    count: int, share: float, rank: int | None
) -> None:
    values = [float(value) for value in torch.randperm(count, generator=torch.Generator().manual_seed(0))]
    assert conformal_quantile(values, share) == (math.inf if rank is None else sorted(values)[rank - 1])


def test_of_few_questions_everything_is_kept() -> None:
    row = fit(drawn(8, 0), bins=1)
    assert row["depths"]["0.95"] == [1.0]


def test_a_row_is_monotone_and_holds_what_it_was_fitted_on() -> None:
    rows = drawn(600, 1)
    row = fit(rows)
    for less, more in zip(row["depths"].values(), list(row["depths"].values())[1:], strict=False):
        assert all(a <= b for a, b in zip(less, more, strict=True))
    measured = report(row, rows)
    for share in SHARES:
        facts = measured[str(share)]
        assert facts["whole"] >= share
        assert facts["questions"] == row["questions"]
        assert facts["abstained"] == pytest.approx(0.1, abs=0.01)
        assert facts["interval"][0] <= facts["whole"] <= facts["interval"][1]
    cells = [measured[str(share)]["cells"] for share in SHARES]
    assert cells == sorted(cells)


def test_the_promise_holds_on_questions_drawn_alike() -> None:
    """Its law: the mean over calibrations is at least the share, and with this many questions hardly more."""
    reports = [report(fit(drawn(300, seed)), drawn(300, 900 + seed)) for seed in range(12)]
    for share in SHARES:
        kept = fmean(facts[str(share)]["whole"] for facts in reports)
        assert share - 0.01 < kept < share + 0.03


def test_the_depth_of_a_question_is_that_of_its_deepest_evidence() -> None:
    for row in drawn(50, 2):
        if row.evidence.any():
            assert bool((depths(row.logits)[row.evidence] <= row.depth).all())
            shallower = depths(row.logits) < row.depth
            assert not bool((row.evidence & ~shallower).sum() == 0), "no smaller set holds all of it"


def test_where_confidence_tells_fewer_cells_are_kept_by_its_bins() -> None:
    measured = compare(drawn(600, 3))
    assert set(measured) == set(FAMILIES)
    for family in measured.values():
        assert all(0 < facts["of all"] <= 1 for facts in family.values())
    assert measured["depth"]["2"]["cells"] < measured["depth"]["1"]["cells"]
    assert measured["rank"]["1"]["of all"] == pytest.approx(measured["share of cells"]["1"]["of all"])


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_ranks_cells_as_the_map_does(name: str) -> None:
    for row in drawn(20, 4):
        levels = FAMILIES[name](row.logits)
        assert bool((levels[row.logits.argsort(descending=True)].diff() >= -1e-6).all())


def test_questions_about_no_place_and_without_evidence_calibrate_nothing() -> None:
    rows = drawn(100, 5)
    vain = [row._replace(evidence=torch.zeros_like(row.evidence)) for row in rows]
    whole = [row._replace(coupling=Coupling(row.logits, 0.9, overview=0.95)) for row in rows]
    assert fit([*rows, *vain, *whole]) == fit(rows)
    with pytest.raises(ValueError, match="no question has evidence: give labelled pictures"):
        fit(vain)


def test_the_calibrated_map_is_that_which_calls_rank() -> None:
    from arr_coc.selector import Selector

    image = Image.new("RGB", (320, 256), "white")
    image.paste((200, 30, 30), (40, 40, 90, 90))
    boxes = ((40.0, 40.0, 90.0, 90.0),)
    asked = (("Where is the red square?", "object", boxes), ("Who is it?", "unanswerable", ()))
    sample = RealSample("one.png", "photo", lambda: image, asked, ())
    source, _ = open_source("guide")
    rows = list(questions_of(source, [sample]))
    assert [bool(row.evidence.any()) for row in rows] == [True, False]
    allocation = Selector()(image, asked[0][0], budget=7)
    assert torch.equal(rows[0].logits.sigmoid().view(allocation.grid), allocation.balanced)
    assert rows[0].logits.topk(7).values.min() == rows[0].logits[allocation.keep].min()


def test_known_print_is_read_in_place_of_an_ocr() -> None:
    source, reader = open_source("guide")
    assert isinstance(source, GuideSource)
    reader.lines = (PrintedLine("Total", (0.0, 0.0, 9.0, 9.0)),)
    assert reader(torch.zeros(2, 2, 3).numpy()) == reader.lines


def test_rules_of_a_fitted_row() -> None:
    row = fit(drawn(300, 6))
    least = rule_of(row, 0.9)
    assert least.depths == tuple(row["depths"]["0.9"])
    assert least.doubt(Coupling(torch.zeros(2, 2), row["least"])) is None
