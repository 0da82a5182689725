"""The budget: what is one, what it comes to, how "auto" counts, and the loss that teaches it."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as draw
from torch import Tensor

import arr_coc
from arr_coc.choose.attending import TokenAllocator
from arr_coc.choose.balancing import AdaptiveTensionBalancer
from arr_coc.choose.budget import (
    auto_loss,
    budget_count,
    compute_retained_tokens_count,
    count_cells,
    coverage_budget,
    coverage_share,
    divide_budget,
    effective_cells,
    enough_cells,
    expected_tokens,
    parse_budget,
)
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, Relevance
from arr_coc.choose.texture import generate_texture_array
from each import each

D = 48


def budget_loss(relevance: Relevance, evidence: torch.Tensor, margin: float = 1.5) -> torch.Tensor:
    return auto_loss(relevance.logits, relevance.tensions[:, 0], evidence, margin)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class TestBudget:
    @each(
        ("value", "parsed"),
        [
            (273, 273),
            ("273", 273),
            (0.25, 0.25),
            ("0.25", 0.25),
            ("25%", 0.25),
            (" 22.2 %", 0.222),
            ("100%", 1.0),
            ("1", 1),
            (1.0, 1.0),
            ("1.0", 1.0),
            (" AUTO ", "auto"),
            (" Coverage 0.90 ", "coverage 0.9"),
            ("coverage .5", "coverage 0.5"),
            (np.int64(64), 64),
            (np.uint8(64), 64),
            (np.float32(0.25), 0.25),
            (np.float64(1.0), 1.0),
        ],
    )
    def test_parse(self, value, parsed):
        assert parse_budget(value) == parsed
        assert type(parse_budget(value)) is type(parsed)

    @each(
        "value",
        [
            0,
            -3,
            "0",
            "-1",
            0.0,
            -0.5,
            1.5,
            273.0,
            "abc",
            "",
            "nan",
            float("nan"),
            float("inf"),
            "inf",
            "²",
            "0%",
            "101%",
            "%",
            "nan%",
            "1_0%x",
            True,
            None,
            [],
            np.int64(0),
            np.float32(1.5),
            np.float64("nan"),
            np.bool_(True),
        ],
    )
    def test_parse_names_value_and_remedy(self, value):
        with pytest.raises(ValueError, match=r"budget .*use a count \(273\), a fraction") as error:
            parse_budget(value)
        assert repr(value) in str(error.value)

    @each(
        ("budget", "total", "count"),
        [(None, 1024, 273), (None, 100, 100), (64, 1024, 64), (1024, 1024, 1024), (0.25, 1024, 256),
         (0.25, 10, 3), (1e-6, 1024, 1), (1.0, 77, 77), ("64", 64, 64)],
    )  # fmt: skip
    def test_count(self, budget, total, count):
        assert budget_count(budget, total) == count == compute_retained_tokens_count(total, budget)

    def test_count_beyond_the_image(self):
        with pytest.raises(ValueError, match="budget 65 exceeds the 64 visual tokens"):
            budget_count(65, 64)

    @each("budget", ["auto", "coverage 0.9"])
    def test_auto_and_a_coverage_have_no_count_before_scores(self, budget):
        with pytest.raises(ValueError, match=f'"{budget}" has no count before scores'):
            budget_count(budget, 64)


class TestCoverage:
    def test_neither_a_budget_or_a_coverage(self):
        assert coverage_budget(None, None) is None
        assert coverage_budget(64, None) == 64
        assert coverage_budget(None, 0.9) == coverage_budget(None, np.float64(0.9)) == "coverage 0.9"

    def test_both(self):
        with pytest.raises(ValueError, match=r"budget 'auto' and coverage 0\.9 are both named"):
            coverage_budget("auto", 0.9)

    @each("share", [0, 1, -0.1, 2, float("nan"), float("inf"), True, "", "x", None.__class__, [0.9]])
    def test_what_is_no_share(self, share):
        with pytest.raises(ValueError, match=r"is no share above 0 and below 1: use 0\.9"):
            coverage_budget(None, share)

    @each("text", ["coverage 1", "coverage 0", "coverage x", "coverage nan"])
    def test_as_text(self, text):
        with pytest.raises(ValueError, match=r"coverage .* is no share"):
            parse_budget(text)

    @each("share", [0.9, 0.123456789, 1e-9])
    def test_a_share_comes_back(self, share):
        budget = coverage_budget(None, share)
        assert parse_budget(budget) == budget
        assert coverage_share(budget) == share

    @each("budget", [None, 64, 0.9, "auto"])
    def test_other_budgets_have_none(self, budget):
        assert coverage_share(budget) is None

    def test_scores_alone_make_no_count_of_it(self):
        with pytest.raises(ValueError, match="coverage"):
            count_cells("coverage 0.9", torch.rand(1, 50))


class TestAuto:
    def tokens(self, scores) -> int:
        return count_cells("auto", scores.view(1, 1024))[0]

    @each("ground", [0.0, 0.1, 0.3, 0.5])
    def test_a_single_hot_cell_gives_64(self, ground):
        scores = torch.full((1024,), ground)
        scores[500] = 1.0
        assert self.tokens(scores) == 64

    @each("level", [0.0, 0.02, 0.5, 1.0])
    def test_a_flat_map_gives_400(self, level):
        assert self.tokens(torch.full((1024,), level)) == 400
        assert self.tokens((torch.full((1024,), level) + 0.004 * torch.randn(1024)).clamp(0, 1)) > 390

    def test_between_it_counts_the_hot_cells(self):
        spent = []
        for hot in (100, 200, 300):
            scores = torch.rand(1024) * 0.15
            scores[:hot] = 0.9
            spent.append(self.tokens(scores))
            assert hot <= spent[-1] <= 1.2 * hot
        assert spent == sorted(spent)

    def test_softmax_entropy_would_say_400_for_both(self):
        """The formula the law warns of: its perplexity hardly moves on scores in [0, 1]."""
        hot = torch.zeros(1024)
        hot[0] = 1
        p = hot.softmax(0)
        assert torch.exp(-(p * p.log()).sum()) > 1000
        assert effective_cells(hot) < 2

    def test_clamped_to_the_image(self):
        assert count_cells("auto", torch.zeros(1, 30)) == [30]

    def test_each_image_has_its_own(self):
        scores = torch.zeros(2, 32, 32)
        scores[0, 3, 3] = 1
        assert count_cells("auto", scores.flatten(1)) == [64, 400]

    def test_differentiable_in_scores_and_compress(self):
        scores, compress = torch.rand(1024).requires_grad_(), torch.tensor(0.55, requires_grad=True)
        expected_tokens(scores**6, compress).backward()
        assert scores.grad.abs().sum() > 0
        assert compress.grad < 0


class TestCountCells:
    def test_a_count_and_a_fraction_are_the_same_for_every_image(self):
        scores = torch.rand(3, 50)
        assert count_cells(20, scores) == count_cells("0.4", scores) == [20] * 3
        assert count_cells(None, scores) == [50] * 3

    @pytest.mark.parametrize("needed", [None, "enough"])
    def test_it_is_what_the_allocator_keeps(self, needed):
        logits = torch.randn(4, 32, 32) * 2 - 3
        cells, compress = enough_cells(logits) if needed else None, torch.rand(4)
        counts = count_cells("auto", logits.sigmoid().flatten(1), compress, cells)
        kept = TokenAllocator()(logits.sigmoid(), "auto", compress=compress, needed=cells)
        assert counts == [len(one.keep) for one in kept]

    @each("bad", [0, 1.5, "many", 51])
    def test_a_bad_budget(self, bad):
        with pytest.raises(ValueError, match="budget"):
            count_cells(bad, torch.rand(1, 50))


def test_how_auto_chooses_is_written_in_one_file():
    """Its constants and the counts that they make are read nowhere else."""
    inner = {"effective_cells", "spent_tokens", "expected_tokens"}
    for path in Path(arr_coc.__file__).parent.rglob("*.py"):
        if path.name == "budget.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "arr_coc.choose.budget":
                names = {alias.name for alias in node.names}
                assert not {name for name in names if name.startswith("AUTO_")} | names & inner, path


class TestBudgetLoss:
    def relevance(self, hot: int, compress: float = 0.5, side: int = 32) -> Relevance:
        """A map whose first `hot` cells are relevant."""
        scores = torch.full((side * side,), 0.001)
        scores[:hot] = torch.linspace(0.95, 0.9, hot)
        maps = scores.view(1, side, side)
        even = torch.full((1, 3), 0.5)
        return Relevance(*[maps] * 4, even, torch.tensor([[compress, 0.5, 0.5]]), maps.logit())

    def evidence(self, cells, side: int = 32) -> torch.Tensor:
        mask = torch.zeros(side * side, dtype=torch.bool)
        mask[list(cells)] = True
        return mask.view(1, side, side)

    def test_squared_doublings_from_what_is_needed(self):
        r = self.relevance(100)
        effective = effective_cells(r.balanced.flatten(1))[0]
        for margin, rank in ((1.0, 80), (1.5, 80), (2.0, 130)):
            loss = budget_loss(r, self.evidence([3, rank - 1]), margin)
            assert loss == pytest.approx((effective / (margin * rank)).log2().item() ** 2, abs=1e-5)

    def test_asks_for_nearly_all_of_the_evidence(self):
        """One cell of a hundred that the map misses does not ask for the whole image; one of ten does."""
        r = self.relevance(100)
        assert budget_loss(r, self.evidence([*range(99), 900]), 1.0) < 0.01
        assert budget_loss(r, self.evidence([*range(9), 900]), 1.0) > 3

    @each(
        ("hot", "compress", "cells"),
        [(5, 0.5, [4]), (5, 1.0, []), (3, 0.0, []), (900, 0.5, [600]), (900, 0.0, [1023])],
    )
    def test_nothing_to_learn_where_the_range_ends(self, hot, compress, cells):
        assert budget_loss(self.relevance(hot, compress), self.evidence(cells)) == 0

    def test_without_evidence_the_least(self):
        loss = budget_loss(self.relevance(256), self.evidence([]))
        assert loss == pytest.approx(4, abs=0.2)  # 256 effective cells are two doublings over 64

    def test_few_cells_are_all_of_them(self):
        assert budget_loss(self.relevance(20, side=5), self.evidence([24], side=5)) == 0

    def test_each_row_for_itself(self):
        rows = [(self.relevance(100, 0.2), self.evidence([150])), (self.relevance(300), self.evidence([7]))]
        both = Relevance(*(torch.cat(x) for x in zip(*(r[:7] for r, _ in rows), strict=True)))
        together = budget_loss(both, torch.cat([e for _, e in rows]))
        assert together == pytest.approx(sum(budget_loss(r, e).item() for r, e in rows) / 2, rel=1e-5)

    @pytest.mark.parametrize("preset", ["net", "linear"])
    @pytest.mark.parametrize("pooling", ["mean", "learned"])
    def test_teaches_the_compress_tension_and_never_the_scorers(self, preset, pooling):
        model = ARRCOCLayer(ARRCOCConfig(D, preset=preset, pooling=pooling))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.3)
        texture = generate_texture_array(torch.rand(2, 3, 128, 128), (8, 8))
        texture = torch.nn.functional.interpolate(texture, size=(24, 24))
        evidence = torch.zeros(2, 24, 24, dtype=torch.bool)  # asks for the least of a map that is not peaked
        query, mask = torch.randn(2, 4, D), torch.ones(2, 4, dtype=torch.bool)
        budget_loss(model.relevance(texture, query, mask), evidence).backward()
        for scorer in (model.information, model.perspectival, model.participatory):
            assert not any(p.grad is not None and p.grad.any() for p in scorer.parameters())
        assert (model.balancer.start.grad != 0).tolist() == [False, False, False, True, False, False]
        assert all((p.grad != 0).any() for p in model.balancer.policy.parameters())

    @pytest.mark.slow
    def test_learns_to_spend_by_the_question(self):
        """The map is the same; one kind of question needs three times the tokens of the other."""
        balancer, kinds = AdaptiveTensionBalancer(D), torch.randn(2, D)
        logits = torch.full((2, 3, 32, 32), -6.0)
        logits[:, :, :4] = torch.linspace(3, 2, 128).view(4, 32)
        evidence = torch.zeros(2, 32, 32, dtype=torch.bool)
        evidence[0, 2, 15] = evidence[1, 6, 7] = True  # cells 79 and 199
        optimizer = torch.optim.Adam(balancer.parameters(), lr=0.03)
        for _ in range(150):
            mixed, weights, tensions = balancer.mix(logits, kinds)
            maps = mixed.sigmoid()
            loss = budget_loss(Relevance(*[maps] * 4, weights, tensions, mixed), evidence)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        spent = expected_tokens(maps.flatten(1), tensions[:, 0])
        assert spent.tolist() == pytest.approx([120, 300], rel=0.05)

    def test_misfits_are_named(self):
        with pytest.raises(ValueError, match=r"evidence \(1, 5, 5\) must have the shape of the maps"):
            budget_loss(self.relevance(9), self.evidence([1], side=5))
        with pytest.raises(ValueError, match="margin 0 must be above 0"):
            budget_loss(self.relevance(9), self.evidence([1]), margin=0)


# ---- one budget of several images ------------------------------------------------------------------------

SEVERAL = draw.lists(draw.lists(draw.integers(-4, 4), min_size=1, max_size=4), min_size=1, max_size=3)
MANY = settings(max_examples=200, deadline=None, derandomize=True)


def maps_of(values: list[list[int]]) -> list[Tensor]:
    return [torch.tensor(one, dtype=torch.float32) for one in values]


def kept_relevance(maps: list[Tensor], counts: list[int]) -> float:
    """The sum of the best cells of each map."""
    pairs = zip(maps, counts, strict=True)
    return sum(float(one.flatten().topk(count).values.sum()) for one, count in pairs)


class TestDividing:
    @MANY
    @given(SEVERAL, draw.integers(0, 12), draw.integers(1, 3))
    def test_no_other_division_keeps_more(self, values: list[list[int]], more: int, least: int) -> None:
        maps = maps_of(values)
        low = [min(least, len(one)) for one in maps]
        total = sum(low) + more
        counts = divide_budget(maps, total, least)
        ranges = [range(few, len(one) + 1) for few, one in zip(low, maps, strict=True)]
        every = [others for others in product(*ranges) if sum(others) == min(total, sum(map(len, maps)))]
        assert tuple(counts) in every
        assert kept_relevance(maps, counts) == max(kept_relevance(maps, list(others)) for others in every)

    @MANY
    @given(SEVERAL, draw.integers(0, 10))
    def test_more_to_keep_takes_from_nobody(self, values: list[list[int]], more: int) -> None:
        maps = maps_of(values)
        before = divide_budget(maps, len(maps) + more)
        after = divide_budget(maps, len(maps) + more + 1)
        assert all(a <= b for a, b in zip(before, after, strict=True))

    @MANY
    @given(SEVERAL, draw.integers(0, 10), draw.integers(1, 5))
    def test_an_image_that_matters_more_gets_no_less(
        self, values: list[list[int]], more: int, raised: int
    ) -> None:
        maps = maps_of(values)
        before = divide_budget(maps, len(maps) + more)
        after = divide_budget([maps[0] + raised, *maps[1:]], len(maps) + more)
        assert after[0] >= before[0]

    def test_it_follows_relevance_whatever_the_shape_and_order(self) -> None:
        maps = [torch.rand(4, 6), torch.rand(1, 5, 5) + 1, torch.rand(7)]
        assert divide_budget(maps, 20) == [1, 18, 1]
        assert divide_budget(maps[::-1], 20) == [1, 18, 1]
        assert divide_budget(maps, 20, least=5) == [5, 10, 5]
        assert divide_budget(maps, 1000) == [24, 25, 7]
        assert divide_budget(maps[:1], 9) == [9]
        assert divide_budget([torch.ones(3), torch.ones(3)], 4) == [3, 1]  # ties go to the earlier

    @pytest.mark.parametrize(
        ("maps", "total", "least", "message"),
        [
            ([], 5, 1, r"maps \[\] share no budget"),
            ([torch.rand(2), torch.rand(0)], 5, 1, r"maps \[\[2\], \[0\]\] share no budget"),
            ([torch.tensor([torch.nan])], 5, 1, "share no budget: give a finite map"),
            ([torch.rand(9), torch.rand(9)], 1, 1, "budget 1 can't be shared by 2 images"),
            ([torch.rand(9), torch.rand(9)], 9, 5, "with at least 5 cells each: use a greater budget"),
            ([torch.rand(9)], 5, 0, "with at least 0 cells each"),
        ],
    )
    def test_what_can_not_be_shared(self, maps: list[Tensor], total: int, least: int, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            divide_budget(maps, total, least)
