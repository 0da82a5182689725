"""The loss of the automatic budget: what it asks for, and what it teaches."""

from __future__ import annotations

import pytest
import torch

from arr_coc.choose.balancing import AdaptiveTensionBalancer
from arr_coc.choose.budget import auto_loss, effective_cells, expected_tokens
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, Relevance
from arr_coc.choose.texture import generate_texture_array

D = 48


def budget_loss(relevance: Relevance, evidence: torch.Tensor, margin: float = 1.5) -> torch.Tensor:
    return auto_loss(relevance.logits, relevance.tensions[:, 0], evidence, margin)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


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

    @pytest.mark.parametrize(
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
