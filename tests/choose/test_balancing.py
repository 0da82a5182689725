"""The balancer: its fixed mixture, its gates, and one tested effect per tension."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from arr_coc.choose.attending import TokenAllocator
from arr_coc.choose.balancing import FIXED_MIXTURE, AdaptiveTensionBalancer, Balance, explore_share, steepness
from arr_coc.choose.budget import expected_tokens
from arr_coc.choose.knowing import PRESETS

D = 24


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def maps(batch=2, n=8) -> list[torch.Tensor]:
    return [torch.rand(batch, n, n) * 0.9 + 0.05 for _ in range(3)]


@pytest.mark.parametrize("preset", PRESETS)
class TestBalancer:
    def test_cardinality(self, preset):
        out = AdaptiveTensionBalancer(D, preset=preset)(*maps(), torch.randn(2, D))
        assert isinstance(out, Balance)
        assert (out.balanced.shape, out.weights.shape, out.tensions.shape) == ((2, 8, 8), (2, 3), (2, 3))
        assert ((out.balanced > 0) & (out.balanced < 1)).all()

    def test_untrained_is_the_fixed_mixture(self, preset):
        a, b, c = maps()
        query, gestalt = torch.randn(2, D) * 50, torch.randn(2, D)
        out = AdaptiveTensionBalancer(D, preset=preset)(a, b, c, query, gestalt)
        assert torch.allclose(out.weights, torch.tensor(FIXED_MIXTURE).expand(2, 3), atol=1e-5)
        assert torch.allclose(out.tensions, torch.full((2, 3), 0.5), atol=1e-5)
        by_hand = sum(w * x.logit() for w, x in zip(FIXED_MIXTURE, (a, b, c), strict=True)).sigmoid()
        assert torch.allclose(out.balanced, by_hand, atol=1e-4)

    @pytest.mark.parametrize("value", [0.0, 1.0])
    def test_saturated_maps_stay_finite(self, preset, value):
        full = torch.full((1, 4, 4), value)
        out = AdaptiveTensionBalancer(D, preset=preset)(full, full, full, torch.zeros(1, D))
        assert all(x.isfinite().all() for x in out)

    def test_participatory_alone_can_drive(self, preset):
        a, b, c = maps()
        balancer = AdaptiveTensionBalancer(D, preset=preset)
        with torch.no_grad():
            balancer.start[:3] = torch.tensor([-30.0, -30.0, 30.0])
        assert torch.allclose(balancer(a, b, c, torch.randn(2, D)).balanced, c, atol=1e-4)

    def test_gates_may_all_be_high(self, preset):
        balancer = AdaptiveTensionBalancer(D, preset=preset)
        with torch.no_grad():
            balancer.start[:3] = 5
        assert (balancer(*maps(), torch.randn(2, D)).weights > 0.9).all()

    def test_weak_saliency_lowers_the_perspectival_weight(self, preset):
        a, b, c = maps()
        balancer = AdaptiveTensionBalancer(D, preset=preset)
        ratio = {}
        for peak in (0.9, 0.31, 0.15, 0.05):
            weights = balancer(a, b / b.amax() * peak, c, torch.randn(2, D)).weights
            ratio[peak] = weights[:, 1].max().item() / FIXED_MIXTURE[1]
            assert torch.allclose(weights[:, [0, 2]], torch.tensor([0.25, 0.5]), atol=1e-5)
        assert ratio[0.9] == pytest.approx(1, abs=1e-4) == ratio[0.31]
        assert ratio[0.15] == pytest.approx(0.5, abs=1e-3)
        assert ratio[0.05] == pytest.approx(1 / 6, abs=1e-3)

    def test_no_image_influences_another(self, preset):
        balancer = AdaptiveTensionBalancer(D, preset=preset)
        for p in balancer.parameters():
            torch.nn.init.normal_(p)
        m, q = maps(), torch.randn(2, D)
        alone = balancer(*(x[1:] for x in m), q[1:])
        both = balancer(*m, q)
        assert all(torch.allclose(x, y[1:], atol=1e-5) for x, y in zip(alone, both, strict=True))

    def test_gradient_reaches_every_parameter(self, preset):
        """Through the logits and the tensions, which choose rather than score."""
        balancer = AdaptiveTensionBalancer(D, preset=preset)
        z, _, tensions = balancer.mix(torch.randn(2, 3, 8, 8), torch.randn(2, D), torch.randn(2, D))
        (z.square().mean() + tensions.sum()).backward()
        for name, p in balancer.named_parameters():
            assert p.grad.isfinite().all(), name
            assert p.grad.abs().sum() > 0, name


class TestPolicy:
    def trained(self) -> AdaptiveTensionBalancer:
        balancer = AdaptiveTensionBalancer(D)
        torch.nn.init.normal_(balancer.policy[2].weight)
        return balancer

    def test_weights_depend_on_question_gestalt_and_image(self):
        balancer, m, q, g = self.trained(), maps(1), torch.randn(1, D), torch.randn(1, D)
        base = balancer(*m, q, g).weights
        assert not torch.allclose(base, balancer(*m, torch.randn(1, D), g).weights, atol=1e-3)
        assert not torch.allclose(base, balancer(*m, q, torch.randn(1, D)).weights, atol=1e-3)
        assert not torch.allclose(base, balancer(*maps(1), q, g).weights, atol=1e-4)

    def test_learns_a_rule_of_question_and_image(self):
        """ "Where is" trusts the first map, "what is" the third; only the right gate can follow."""
        balancer, kinds = AdaptiveTensionBalancer(D), torch.randn(2, D)
        optimizer = torch.optim.Adam(balancer.parameters(), lr=0.03)
        for _ in range(120):
            kind, z = torch.randint(2, (16,)), torch.randn(16, 3, 6, 6) * 2
            truth = z[torch.arange(16), kind * 2] > 0
            loss = F.binary_cross_entropy_with_logits(balancer.mix(z, kinds[kind])[0], truth.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        weights = balancer.mix(torch.randn(2, 3, 6, 6) * 2, kinds)[1]
        assert weights[0, 0] > 2 * weights[0, 2]
        assert weights[1, 2] > 2 * weights[1, 0]


class TestTensions:
    """Each tension turned alone, from one end to the other."""

    def turned(self, index: int, value: float) -> AdaptiveTensionBalancer:
        balancer = AdaptiveTensionBalancer(D)
        with torch.no_grad():
            balancer.start[3 + index] = torch.tensor(value).logit(eps=1e-4)
        return balancer

    def test_compress_sets_the_number_of_tokens(self):
        scores = torch.zeros(1024)
        scores[:120] = 0.9
        spent = [expected_tokens(scores, self.tension(0, v)).item() for v in (0.0, 0.5, 1.0)]
        assert spent[0] == 400 > spent[1] > spent[2] >= 64
        assert spent[1] == pytest.approx(120, rel=0.05)

    def test_exploit_sets_the_share_of_coverage(self):
        scores, explored = torch.rand(1, 16, 16), []
        for value in (0.0, 0.5, 1.0):
            allocator = TokenAllocator(explore=0.2)
            (chosen,) = allocator(scores, 50, exploit=self.tension(1, value).view(1))
            explored.append(int((chosen.reasons == 1).sum()))
        assert explored == [20, 10, 0]
        assert explore_share(0.5, torch.tensor(0.0)) == 0.5

    def test_focus_steepens(self):
        m, q = maps(1), torch.randn(1, D)
        flat, plain, steep = (self.turned(2, v)(*m, q).balanced for v in (0.0, 0.5, 1.0))
        assert flat.std() < plain.std() < steep.std()
        assert torch.equal(flat.flatten().argsort(), steep.flatten().argsort())
        assert steepness(torch.tensor([0.0, 0.5, 1.0])).tolist() == [0.25, 1.0, 4.0]

    def tension(self, index: int, value: float) -> torch.Tensor:
        return self.turned(index, value)(*maps(1), torch.randn(1, D)).tensions[0, index].round(decimals=3)
