"""Ablations of the layer as configuration, and the budget that the compress tension learns."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
import torch

from arr_coc.attending import effective_cells, expected_tokens
from arr_coc.balancing import BALANCERS, FIXED_MIXTURE, SCORERS, AdaptiveTensionBalancer
from arr_coc.layer import ARRCOCConfig, ARRCOCLayer, Relevance
from arr_coc.texture import generate_texture_array

D = 48
budget_loss = ARRCOCLayer.budget_loss
SUBSETS = [names for size in (1, 2) for names in combinations(SCORERS, size)]
ABLATIONS = [
    *({"scorers": names} for names in SUBSETS),
    {"balancer": "blind"},
    {"balancer": "fixed"},
    {"tokens": False},
]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def layer(**config) -> ARRCOCLayer:
    return ARRCOCLayer(ARRCOCConfig(**{"dim": D} | config))


def trained(**config) -> ARRCOCLayer:
    """The same parameters for every configuration, away from the start, so that the policy net has a say."""
    made, generator = layer(**config), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.3)
    return made


def scene(batch=2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Texture, query, mask and vision tokens of an 8x8 grid."""
    texture = generate_texture_array(torch.rand(batch, 3, 128, 128), (8, 8))
    words = torch.randn(batch, 4, D), torch.ones(batch, 4, dtype=torch.bool)
    return texture, *words, torch.randn(batch, 64, D)


class TestConfig:
    @pytest.mark.parametrize("ablation", ABLATIONS)
    def test_round_trip(self, ablation):
        config = ARRCOCConfig(D, **ablation)
        assert ARRCOCConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
        assert config != ARRCOCConfig(D)

    def test_a_config_saved_before_is_the_whole_layer(self):
        saved = ARRCOCConfig(D).to_dict()
        for name in ("scorers", "balancer", "tokens"):
            del saved[name]
        assert ARRCOCConfig.from_dict(saved) == ARRCOCConfig(D, scorers=list(SCORERS))

    @pytest.mark.parametrize(
        "bad",
        [{"scorers": ()}, {"scorers": "participatory"}, {"scorers": ["participatory", "taste"]},
         {"scorers": ["information", "information"]}, {"scorers": None}, {"balancer": "wise"},
         {"balancer": None}, {"tokens": 0}, {"tokens": "yes"}],
    )  # fmt: skip
    def test_exception_names_the_value(self, bad):
        (value,) = bad.values()
        with pytest.raises(ValueError, match=next(iter(bad))) as error:
            ARRCOCConfig(D, **bad)
        assert repr(value) in str(error.value)

    def test_learned_pooling_needs_the_scorer_that_pools(self):
        with pytest.raises(ValueError, match="pooling 'learned' is by the participatory scorer"):
            ARRCOCConfig(D, scorers=["information"], pooling="learned")
        ARRCOCConfig(D, scorers=["participatory"], pooling="learned")

    @pytest.mark.parametrize("preset", ["net", "linear"])
    def test_every_ablation_has_the_same_parameters(self, preset):
        whole = layer(preset=preset).state_dict()
        for ablation in ABLATIONS:
            state = layer(preset=preset, **ablation).state_dict()
            assert list(state) == list(whole)
            assert all(torch.equal(state[name], whole[name]) for name in whole)


@pytest.mark.parametrize("preset", ["net", "linear"])
@pytest.mark.parametrize("names", SUBSETS)
class TestScorers:
    def test_left_out_is_recorded_with_weight_zero(self, names, preset):
        inputs = scene()
        whole, r = (trained(preset=preset, **c).relevance(*inputs) for c in ({}, {"scorers": names}))
        for i, name in enumerate(SCORERS):
            assert torch.equal(r[i], whole[i])
            assert (r.weights[:, i] > 0).all() == (name in names)
        assert not torch.allclose(r.logits, whole.logits, atol=1e-2)

    def test_left_out_changes_nothing_and_learns_nothing(self, names, preset):
        """Neither by its gate nor by its map's statistics, which the policy net would read."""
        inputs, model = scene(), trained(preset=preset, scorers=names)
        before = model.relevance(*inputs)
        (before.logits.square().mean() + before.tensions.sum() + before.weights.sum()).backward()
        for name in SCORERS:
            for part, p in getattr(model, name).named_parameters():
                assert (p.grad is not None) == (name in names), (name, part)
        with torch.no_grad():
            for name in set(SCORERS) - set(names):
                for p in getattr(model, name).parameters():
                    p.add_(torch.randn_like(p))
        after = model.relevance(*inputs)
        assert torch.equal(before.logits, after.logits)
        assert torch.equal(before.tensions, after.tensions)


def test_one_scorer_alone_decides_the_order():
    inputs = scene()
    for name in SCORERS:
        r = layer(scorers=[name], balancer="fixed").relevance(*inputs)
        first = r.balanced.flatten(1).argsort(stable=True)
        assert torch.equal(first, getattr(r, name).flatten(1).argsort(stable=True))


def test_left_out_scorer_overrules_no_void():
    peak = torch.full((1, 16, 16), 0.02)
    peak[0, 5, 9] = 0.98
    half = torch.full((1, 3), 0.5)
    r = Relevance(peak, peak, peak, peak, half, half, peak.logit(), torch.tensor([False]))
    assert not layer().allocate(r, 64)[0].void
    assert layer(scorers=["information", "perspectival"]).allocate(r, 64)[0].void


class TestBalancers:
    def weights(self, kind: str, maps, query, gestalt) -> torch.Tensor:
        torch.manual_seed(3)
        balancer = AdaptiveTensionBalancer(D, kind=kind)
        torch.nn.init.normal_(balancer.policy[2].weight)
        return torch.cat(balancer(*maps, query, gestalt)[1:], dim=1)

    def test_what_each_kind_can_see(self):
        """The question, the gestalt vector, the maps: all, the question alone, nothing."""
        maps, other = (list(torch.rand(3, 1, 8, 8) * 0.5 + 0.4) for _ in range(2))
        q, g = torch.randn(2, 1, D), torch.randn(2, 1, D)
        seen = {}
        for kind in BALANCERS:
            base = self.weights(kind, maps, q[0], g[0])
            changed = ((maps, q[1], g[0]), (maps, q[0], g[1]), (other, q[0], g[0]))
            seen[kind] = [not torch.equal(base, self.weights(kind, *change)) for change in changed]
        assert seen == {"policy": [True] * 3, "blind": [True, False, False], "fixed": [False] * 3}

    @pytest.mark.parametrize("preset", ["net", "linear"])
    @pytest.mark.parametrize("kind", BALANCERS)
    def test_untrained_is_the_mixture_and_weak_saliency_lowers_it(self, kind, preset):
        a, b, c = torch.rand(3, 1, 8, 8) * 0.9 + 0.05
        balancer = AdaptiveTensionBalancer(D, preset=preset, kind=kind)
        for peak, factor in ((0.9, 1.0), (0.15, 0.5)):
            out = balancer(a, b / b.amax() * peak, c, torch.randn(1, D), torch.randn(1, D))
            expected = torch.tensor(FIXED_MIXTURE) * torch.tensor([1.0, factor, 1.0])
            assert torch.allclose(out.weights[0], expected, atol=1e-3)
            assert torch.allclose(out.tensions, torch.full((1, 3), 0.5), atol=1e-5)

    def test_fixed_learns_constants_alone(self):
        model = trained(balancer="fixed")
        r = model.relevance(*scene())
        (r.logits.square().mean() + r.tensions.sum()).backward()
        learned = {name for name, p in model.balancer.named_parameters() if p.grad is not None}
        assert learned == {"start", "bias"}
        assert (model.balancer.start.grad != 0).all()
        assert torch.equal(r.tensions[0], model.balancer.start[3:].sigmoid())

    def test_unknown_kind(self):
        with pytest.raises(ValueError, match="unknown balancer 'free'"):
            AdaptiveTensionBalancer(D, kind="free")


class TestWithoutTokens:
    def test_scores_as_before_encoding(self):
        texture, q, m, vision = scene()
        blind, whole = trained(tokens=False), trained()
        r = blind.relevance(texture, q, m, vision)
        assert torch.equal(r.logits, whole.relevance(texture, q, m).logits)
        assert not torch.allclose(r.logits, whole.relevance(texture, q, m, vision).logits, atol=1e-2)
        r.logits.square().mean().backward()
        assert blind.participatory.cell.grad is None
        assert blind.participatory.paint.grad.abs().sum() > 0

    def test_still_gathers_the_kept_tokens(self):
        vision = torch.randn(1, 64, D)
        out = layer(tokens=False)(vision, torch.randn(1, 4, D), torch.rand(1, 3, 256, 256), budget=10)
        assert torch.equal(out.tokens[0], vision[0, out.allocation.keep])


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
    @pytest.mark.parametrize("kind", BALANCERS)
    @pytest.mark.parametrize("pooling", ["mean", "learned"])
    def test_teaches_the_compress_tension_and_never_the_scorers(self, kind, preset, pooling):
        model = trained(balancer=kind, preset=preset, pooling=pooling)
        texture, q, m, _ = scene()
        texture = torch.nn.functional.interpolate(texture, size=(24, 24))
        evidence = torch.zeros(2, 24, 24, dtype=torch.bool)  # asks for the least of a map that is not peaked
        budget_loss(model.relevance(texture, q, m), evidence).backward()
        for name in SCORERS:
            assert not any(p.grad is not None and p.grad.any() for p in getattr(model, name).parameters()), (
                name
            )
        assert (model.balancer.start.grad != 0).tolist() == [False, False, False, True, False, False]
        asked = [p.grad is not None and bool((p.grad != 0).any()) for p in model.balancer.policy.parameters()]
        blind = preset == "linear" and kind == "blind"
        assert all(asked) == (kind != "fixed" and not blind)
        assert any(asked) == all(asked)

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
