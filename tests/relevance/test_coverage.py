"""Coverage: nested sets of cells, the rule of a table, and what is said where nothing is promised."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from PIL import Image

from arr_coc import ARRCOCModel, Reason, Selector
from arr_coc.files.saved import BUNDLED
from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.guide.guide import load_guide
from arr_coc.guide.trust import SENTENCES
from arr_coc.relevance import coverage
from arr_coc.relevance.coverage import (
    NO_PLACE,
    NO_STRUCTURE,
    UNSURE,
    CoverageRule,
    coverage_rule,
    depths,
    rule_of,
)
from each import each
from tiny import picture, tiny

QUESTION = "What is the invoice number?"
VAIN = "Who is the tsar of Bulgaria?"
LOGITS = 3 * torch.randn(12, 10, generator=torch.Generator().manual_seed(1)) - 5
IMAGE = picture(1, (48, 40))


@cache
def selector() -> Selector:
    return Selector()


def sample(size: tuple[int, int] = (640, 512)) -> Image.Image:
    with Image.open(BUNDLED / "sample.png") as image:
        return image.convert("RGB").resize(size)


def row(**changes: Any) -> dict[str, Any]:
    """A row of a table that was fitted on nothing."""
    table = {"0.8": [0.4, 0.1], "0.9": [0.5, 0.3], "0.95": [0.9, 0.6]}
    made = {"version": load_guide().version, "least": 0.0, "edges": [0.5], "depths": table}
    return made | changes


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The guide's row alone, whatever the bundled figures are."""
    made = {"guide": row()}
    monkeypatch.setattr(coverage, "coverage_table", lambda: made)
    return made


class TestRule:
    def test_depths_begin_at_the_highest_and_end_at_the_lowest(self) -> None:
        deep = depths(LOGITS)
        assert (deep.min(), deep.max()) == (0, 1)
        assert deep.argmin() == LOGITS.argmax()
        assert torch.equal(deep.flatten().argsort(), LOGITS.flatten().argsort(descending=True))
        assert torch.allclose(depths(7 * LOGITS - 3), deep, atol=1e-5), "of no unit"

    @each("confidence", [0.1, 0.5, 0.9])
    def test_sets_are_nested_and_grow_with_the_share(self, confidence: float) -> None:
        coupling = Coupling(LOGITS, confidence)
        counts = [rule_of(row(), share).cells(LOGITS, coupling) for share in (0.8, 0.85, 0.9, 0.91, 0.95)]
        assert counts == sorted(counts)
        assert counts[0] >= 1
        assert counts[1] == counts[2], "the next higher share"
        assert counts[-1] > counts[0]

    def test_the_set_is_that_of_the_depth(self) -> None:
        rule = rule_of(row(), 0.9)
        for confidence, depth in ((0.0, 0.5), (0.49, 0.5), (0.5, 0.3), (1.0, 0.3)):
            assert rule.cells(LOGITS, Coupling(LOGITS, confidence)) == int((depths(LOGITS) <= depth).sum())

    def test_the_deepest_keeps_everything(self) -> None:
        rule = CoverageRule(0.9, 0.0, (), (1.0,))
        assert rule.cells(LOGITS, Coupling(LOGITS, 0.9)) == LOGITS.numel()
        assert CoverageRule(0.9, 0.0, (), (0.0,)).cells(LOGITS, Coupling(LOGITS, 0.9)) == 1

    def test_a_map_without_differences_is_kept_whole(self) -> None:
        assert rule_of(row(), 0.8).cells(torch.full((4, 5), -3.0), Coupling(LOGITS, 0.9)) == 20

    def test_what_is_doubtful(self) -> None:
        rule = CoverageRule(0.9, 0.2, (), (0.5,))
        assert rule.doubt(Coupling(LOGITS, 0.2)) is None
        assert rule.doubt(Coupling(LOGITS, 0.19)) == UNSURE
        assert rule.doubt(Coupling(LOGITS, 0.9, overview=0.9)) == NO_PLACE
        assert rule.doubt(Coupling(LOGITS, 0.9, unusual=0.9)) == NO_PLACE
        assert rule.doubt(None) is not None

    def test_a_share_above_all(self) -> None:
        with pytest.raises(ValueError, match=r"coverage 0\.99 is above 0\.95, the highest calibrated"):
            rule_of(row(), 0.99)

    def test_a_share_below_all(self) -> None:
        """It would have got the count of the lowest one without a word."""
        with pytest.raises(ValueError, match=r"coverage 0.5 is below 0.8, the lowest .* budget to keep less"):
            rule_of(coverage.coverage_table()["guide"], 0.5)


class TestTable:
    def test_a_source_without_calibration_is_told_which_have_one(self) -> None:
        source = GuideSource()
        source.name = "mine"
        with pytest.raises(ValueError, match=r"'mine' .* only for guide .*: use one of these as relevance"):
            coverage_rule(source, 0.9)

    def test_other_weights_have_none(self, table: dict[str, Any]) -> None:
        assert coverage_rule(GuideSource(), 0.9).depths == (0.5, 0.3)
        table["guide"]["version"] = "00000000"
        with pytest.raises(ValueError, match="only for guide 00000000"):
            coverage_rule(GuideSource(), 0.9)


def test_the_bundled_table_is_of_the_bundled_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    """After new weights: python runs/coverage.py PICTURES."""
    monkeypatch.undo()
    rules = [coverage_rule(GuideSource(), share) for share in (0.8, 0.9, 0.95)]
    for one, other in pairwise(rules):
        assert all(0 < a <= b <= 1 for a, b in zip(one.depths, other.depths, strict=True))
    for named in coverage.coverage_table().values():
        assert 0 <= named["least"] <= min(named["edges"], default=1)
        assert len(named["depths"]["0.9"]) == len(named["edges"]) + 1


class TestSelector:
    @each("share", [0.8, 0.9, 0.95])
    def test_it_keeps_the_best_cells_of_the_rule(self, share: float) -> None:
        decision = selector().decide(sample(), QUESTION, coverage=share)
        (allocation,), (coupling,) = decision.allocations, decision.couplings
        logits = torch.logit(allocation.balanced.double()).float()
        count = rule_of(row(), share).cells(logits, coupling)
        assert abs(allocation.kept - count) <= 1, "of a logit that was rounded"
        best = allocation.balanced.flatten().argsort(descending=True, stable=True)[: allocation.kept]
        assert torch.isin(allocation.keep, best).float().mean() > 0.98
        assert (allocation.reasons == Reason.RELEVANT).all(), "no cell for coverage of the picture"
        assert allocation.budget == f"coverage {share}"
        assert "promised" not in (allocation.note or "")

    def test_more_coverage_keeps_all_that_less_keeps(self) -> None:
        kept = [selector()(sample(), QUESTION, coverage=share).mask() for share in (0.8, 0.9, 0.95)]
        assert all(bool((less <= more).all()) for less, more in pairwise(kept))
        assert kept[0].sum() < kept[-1].sum()

    def test_a_coverage_is_a_budget_too(self) -> None:
        one, other = (
            selector()(sample(), QUESTION, coverage=0.9),
            selector()(sample(), QUESTION, "coverage 0.9"),
        )
        assert torch.equal(one.keep, other.keep)
        assert one.budget == other.budget == "coverage 0.9"

    def test_without_both_it_keeps_the_usual_count(self) -> None:
        assert selector()(sample(), QUESTION).budget == 273

    def test_what_is_not_promised_is_said(self, table: dict[str, Any]) -> None:
        table["guide"]["least"] = 1.0
        allocation = selector()(sample(), QUESTION, coverage=0.9)
        assert (allocation.note or "").endswith(f"coverage 0.9 isn't promised: {UNSURE}")
        allocation = selector()(sample(), "Describe the image.", coverage=0.9)
        assert (allocation.note or "").endswith(f"coverage 0.9 isn't promised: {NO_PLACE}")
        assert (allocation.reasons == Reason.EXPLORED).any(), "it keeps what it would"
        allocation = selector()(sample(), VAIN, coverage=0.9)
        assert SENTENCES["nothing"] in (allocation.note or ""), "the guide's own remark stays"

    def test_noise_has_no_promise(self) -> None:
        noise = Image.effect_noise((512, 512), 90).convert("RGB")
        allocation = selector()(noise, QUESTION, coverage=0.9)
        assert allocation.void
        assert (allocation.note or "").endswith(NO_STRUCTURE)

    def test_everything_kept_needs_no_remark(self, table: dict[str, Any]) -> None:
        table["guide"] |= {"least": 1.0, "depths": {"0.9": [1.0, 1.0]}}
        allocation = selector()(sample(), QUESTION, coverage=0.9)
        assert allocation.kept == allocation.total
        assert "promised" not in (allocation.note or "")

    def test_both_are_too_many(self) -> None:
        with pytest.raises(ValueError, match=r"budget 64 and coverage 0\.9 are both named"):
            selector()(sample(), QUESTION, 64, coverage=0.9)

    @each("share", [0, 1, 1.0, -0.5, 2, float("nan"), True, "much", []])
    def test_what_is_no_share(self, share: Any) -> None:
        with pytest.raises(ValueError, match="is no share above 0 and below 1"):
            selector()(sample(), QUESTION, coverage=share)

    def test_clips_have_no_calibration(self) -> None:
        with pytest.raises(ValueError, match="for pictures alone: give a budget"):
            selector().decide_clip([sample()] * 4, QUESTION, "coverage 0.9")

    def test_beside_a_trained_allocator_the_guide_decides(self) -> None:
        bundled = Selector.from_pretrained("bundled")
        alone = Selector(sizing=bundled.sizing)
        kept = [one(sample(), QUESTION, coverage=0.9) for one in (bundled, alone, bundled)]
        assert torch.equal(kept[0].keep, kept[1].keep)
        assert torch.equal(kept[0].keep, kept[2].keep)
        with pytest.raises(ValueError, match="relevance 'trained': use 'auto'"):
            Selector.from_pretrained("bundled", relevance="trained")(sample(), QUESTION, coverage=0.9)


class TestModel:
    @pytest.fixture
    def model(self) -> ARRCOCModel:
        built = tiny("qwen3_vl")
        return ARRCOCModel.wrap(built.model, built.processor)

    def test_an_answer_is_made_from_the_cells_of_the_rule(self, model: ARRCOCModel) -> None:
        answer = model.ask(IMAGE, QUESTION, coverage=0.9, max_new_tokens=2)
        (coupling,) = answer.couplings
        logits = torch.logit(answer.allocation.balanced.double()).float()
        assert abs(answer.kept - rule_of(row(), 0.9).cells(logits, coupling)) <= 1
        assert answer.budget == answer.allocation.budget == "coverage 0.9"
        assert not answer.fallback
        assert torch.equal(model.look(IMAGE, QUESTION, coverage=0.9).keep, answer.allocation.keep)
        counts = [model.look(IMAGE, QUESTION, coverage=share).kept for share in (0.8, 0.9, 0.95)]
        assert counts == sorted(counts)

    @each("mode", ["prune", "sparse"])
    def test_the_guide_alone_decides_and_says_what_it_does_not_promise(
        self, mode: str, model: ARRCOCModel, table: dict[str, Any]
    ) -> None:
        table["guide"]["least"] = 1.0
        answer = model.ask(IMAGE, VAIN, mode=mode, coverage=0.9, max_new_tokens=2)
        guided = ARRCOCModel.wrap(model, relevance="guide").look(IMAGE, VAIN, mode=mode, coverage=0.9)
        assert torch.equal(answer.allocation.balanced, guided.balanced), "no attention is mixed in"
        assert f"coverage 0.9 isn't promised: {UNSURE}" in (answer.note or "")

    def test_where_it_has_no_effect(self, model: ARRCOCModel) -> None:
        answer = model.ask(IMAGE, QUESTION, mode="full", coverage=0.9, max_new_tokens=2)
        assert answer.kept == answer.total
        assert "coverage had no effect in mode full" in (answer.note or "")

    def test_what_is_refused(self, model: ARRCOCModel) -> None:
        with pytest.raises(ValueError, match="both named"):
            model.ask(IMAGE, QUESTION, budget=9, coverage=0.9)
        with pytest.raises(ValueError, match="is no share"):
            model.look(IMAGE, QUESTION, coverage=1.5)
        with pytest.raises(ValueError, match=r"0\.99 is above 0\.95"):
            model.ask(IMAGE, QUESTION, coverage=0.99)
        gaze = ARRCOCModel.wrap(model, relevance="gaze")
        with pytest.raises(ValueError, match="calibrated for relevance 'gaze': use relevance 'auto'"):
            gaze.ask(IMAGE, QUESTION, coverage=0.9)
