"""The layer: configuration, joined parts, parameters, gradients, batches, record."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from arr_coc.choose.allocation import Allocation, Reason
from arr_coc.choose.attending import NonFiniteScores, even_grid
from arr_coc.choose.balancing import FIXED_MIXTURE
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, Relevance
from arr_coc.choose.texture import generate_texture_array
from arr_coc.guide.coupling import Coupling
from arr_coc.relevance.deciding import Cues
from each import each

D = 48


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def layer(**config) -> ARRCOCLayer:
    return ARRCOCLayer(ARRCOCConfig(**{"dim": D} | config))


def page(height=256, width=256, batch=1) -> torch.Tensor:
    """Lines of stripes on white: an image with structure."""
    x = torch.full((batch, 3, height, width), 0.95)
    x[:, :, height // 8 : height // 2, width // 8 : width // 2 : 5] = 0.1
    return x


def question(batch=1, length=4, dim=D) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, length, dim), torch.ones(batch, length, dtype=torch.bool)


class TestConfig:
    def test_round_trip(self):
        for config in (ARRCOCConfig(64), ARRCOCConfig(64, channels=["rgb", "sobel"], budget="auto", rank=8)):
            assert ARRCOCConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config

    @each(
        "bad",
        [{"dim": 0}, {"channels": "full41"}, {"channels": ["none"]}, {"preset": "deep"}, {"rank": 10},
         {"heads": 0}, {"explore": 0.9}, {"budget": -1}, {"budget": "abc"}, {"pooling": "sum"},
         {"pooling": "contextual"}, {"void": "no"}],
    )  # fmt: skip
    def test_exception_names_the_value(self, bad):
        (value,) = bad.values()
        with pytest.raises(ValueError, match=r".") as error:
            ARRCOCConfig(**{"dim": 64} | bad)
        assert str(value).strip("[]'") in str(error.value)

    def test_unknown_field(self):
        with pytest.raises(ValueError, match=r"no colour, but only dim, .*: take colour out of"):
            ARRCOCConfig.from_dict({"dim": 64, "colour": 1})
        with pytest.raises(ValueError, match="no dim"):
            ARRCOCConfig.from_dict({"void": True})


class TestSize:
    @each("dim", [48, 192, 1024, 2048, 4096])
    def test_twenty_to_a_hundred_thousand_parameters(self, dim):
        assert 20_000 <= sum(p.numel() for p in layer(dim=dim).parameters()) <= 100_000

    def test_linear_about_a_hundred(self):
        assert 80 <= sum(p.numel() for p in layer(preset="linear").parameters()) <= 120

    def test_construction_is_deterministic_and_leaves_the_random_state_alone(self):
        torch.manual_seed(1)
        a, drawn = layer(), torch.rand(3)
        torch.manual_seed(1)
        assert torch.equal(drawn, torch.rand(3))
        torch.manual_seed(2)
        assert all(torch.equal(p, q) for p, q in zip(a.parameters(), layer().parameters(), strict=True))


class TestDtype:
    """The layer is in float32 whatever the default dtype, and whatever it or its owner is cast to."""

    def assert_same(self, model: ARRCOCLayer, expected: ARRCOCLayer) -> None:
        state = model.state_dict()
        assert {x.dtype for x in (*state.values(), *model.buffers())} == {torch.float32}
        assert all(torch.equal(state[name], x) for name, x in expected.state_dict().items())
        inputs = torch.randn(1, 64, D), torch.randn(1, 4, D), page()
        a, b = (x(*inputs, budget="auto") for x in (model, expected))
        assert torch.equal(a.budgets, b.budgets)
        assert torch.equal(a.allocation.keep, b.allocation.keep)

    @each("preset", ["net", "linear"])
    @each("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_built_under_another_default(self, dtype, preset):
        expected = layer(preset=preset)
        torch.set_default_dtype(dtype)
        try:
            model = layer(preset=preset)
            assert torch.get_default_dtype() == dtype
            relevance = model.relevance(
                generate_texture_array(page(), (8, 8)),
                torch.randn(1, 4, D),
                torch.ones(1, 4, dtype=torch.bool),
                torch.randn(1, 64, D),
            )
            assert len(model.allocate(relevance, "auto")[0].keep) == 64
        finally:
            torch.set_default_dtype(torch.float32)
        self.assert_same(model, expected)

    @each("preset", ["net", "linear"])
    @each("cast", [torch.nn.Module.half, torch.nn.Module.bfloat16, lambda x: x.to("cpu", torch.float16)])
    def test_cast_alone_or_with_its_owner(self, cast, preset):
        owner = torch.nn.ModuleDict({"layer": layer(preset=preset), "other": torch.nn.Linear(2, 2)})
        cast(owner)
        cast(owner["layer"])
        assert owner["other"].weight.dtype != torch.float32
        self.assert_same(owner["layer"], layer(preset=preset))

    def test_still_moves_to_another_device(self):
        model = layer().to("meta", torch.bfloat16)
        assert {(x.device.type, x.dtype) for x in model.parameters()} == {("meta", torch.float32)}


@pytest.mark.parametrize("preset", ["net", "linear"])
class TestRelevance:
    def test_cardinality(self, preset):
        texture, (q, m) = generate_texture_array(page(96, 160, batch=2), (3, 5)), question(2)
        for vision in (None, torch.randn(2, 15, D)):
            r = layer(preset=preset).relevance(texture, q, m, vision)
            assert all(x.shape == (2, 3, 5) for x in (*r[:4], r.logits))
            assert all(((x >= 0) & (x <= 1)).all() for x in r[:6])
            assert torch.allclose(r.balanced, r.logits.sigmoid())
            assert r.structured.shape == (2,)

    def test_untrained_is_the_documented_mixture(self, preset):
        r = layer(preset=preset).relevance(generate_texture_array(page(), (8, 8)), *question())
        mixed = sum(w * x.logit() for w, x in zip(r.weights[0], r[:3], strict=True))
        assert torch.allclose(r.logits, mixed, atol=1e-3)
        assert torch.allclose(r.weights[0, [0, 2]], torch.tensor(FIXED_MIXTURE)[[0, 2]], atol=1e-5)

    @each("pooling", ["mean", "last", "learned"])
    def test_gradient_reaches_every_scorer_parameter(self, preset, pooling):
        model, (q, m) = layer(preset=preset, pooling=pooling), question(2)
        texture = generate_texture_array(page(batch=2), (8, 8))
        model.relevance(texture, q, m, torch.randn(2, 64, D)).balanced.square().mean().backward()
        for name, p in model.named_parameters():
            assert p.grad is not None, name
            assert p.grad.isfinite().all(), name
            assert p.grad.abs().sum() > 0, name

    def test_half_precision_inputs(self, preset):
        texture, (q, m) = generate_texture_array(page().bfloat16(), (8, 8)), question()
        r = layer(preset=preset).relevance(texture, q.bfloat16(), m, torch.randn(1, 64, D).bfloat16())
        assert all(x.isfinite().all() for x in r[:7])

    def test_batch_equals_single(self, preset):
        texture = generate_texture_array(torch.rand(3, 3, 128, 128), (4, 4))
        q, m = question(3)
        m[0, 2:] = False
        vision, model = torch.randn(3, 16, D), layer(preset=preset)
        together = model.relevance(texture, q, m, vision)
        for i in range(3):
            alone = model.relevance(
                texture[i : i + 1], q[i : i + 1, : m[i].sum()], m[i : i + 1, m[i]], vision[i : i + 1]
            )
            assert torch.allclose(alone.logits[0], together.logits[i], atol=1e-4)


class TestCouplingAndGestaltFromElsewhere:
    def test_a_coupling_takes_the_place_of_the_participatory_scorer(self):
        model, (q, m) = layer(), question()
        texture, coupling = generate_texture_array(page(), (8, 8)), torch.randn(1, 8, 8)
        r = model.relevance(texture, q, m, torch.randn(1, 64, D), coupling=coupling)
        assert torch.equal(r.participatory, coupling.sigmoid())
        own = model.relevance(texture, q, m)
        assert torch.equal(r.information, own.information)
        assert torch.equal(r.perspectival, own.perspectival)
        mixed = sum(w * x.logit() for w, x in zip(r.weights[0], r[:3], strict=True))
        assert torch.allclose(r.logits, mixed, atol=1e-3)
        r.logits.square().mean().backward()
        assert all(p.grad is None for p in model.participatory.parameters())
        assert any(p.grad is not None for p in model.information.parameters())

    def test_a_gestalt_takes_the_place_of_the_mean_token(self):
        model, (q, m) = layer(), question(2)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        texture, cells = generate_texture_array(page(batch=2), (8, 8)), torch.randn(2, 64, D)
        plain = model.relevance(texture, q, m, cells)
        same = model.relevance(texture, q, m, cells, gestalt=cells.mean(1))
        assert torch.equal(plain.logits, same.logits)
        other = model.relevance(texture, q, m, cells, gestalt=torch.randn(2, D))
        assert torch.equal(plain.participatory, other.participatory)  # the balancer alone sees it
        assert (plain.weights - other.weights).abs().max() > 1e-3
        assert (plain.tensions - other.tensions).abs().max() > 1e-3


class TestAllocate:
    def relevance(self, scores, participatory=None, structured=True) -> Relevance:
        logits = scores.logit(eps=1e-6)
        return Relevance(scores, scores, scores if participatory is None else participatory, scores,
                         *torch.full((2, 1, 3), 0.5), logits, torch.tensor([structured]))  # fmt: skip

    def test_record(self):
        scores = torch.rand(1, 4, 6)
        (a,) = layer().allocate(self.relevance(scores), 5, (4, 6))
        assert isinstance(a, Allocation)
        assert (a.grid, a.kept, a.total, a.budget, a.void) == ((1, 4, 6), 5, 24, 5, False)
        assert a.order.tolist() == scores.flatten().argsort(descending=True)[:5].tolist()
        assert torch.equal(a.balanced[0], scores[0])
        assert a.reason_text(0).endswith("<= K 5")

    def test_budgets(self):
        r, model = self.relevance(torch.rand(1, 20, 20)), layer()
        kept = {b: model.allocate(r, b)[0].kept for b in (7, 0.25, 1.0, "auto", "32")}
        assert (kept[7], kept[0.25], kept[1.0], kept["32"]) == (7, 100, 400, 32)
        assert 64 <= kept["auto"] <= 400
        assert model.allocate(r)[0].kept == 273
        assert layer(budget=0.1).allocate(r)[0].kept == 40
        with pytest.raises(ValueError, match="budget 401 exceeds the 400"):
            model.allocate(r, 401)
        with pytest.raises(ValueError, match="budget 500 exceeds the 400"):
            layer(budget=500).allocate(r)

    def test_default_budget_is_clamped(self):
        (a,) = layer().allocate(self.relevance(torch.rand(1, 4, 4)))
        assert (a.kept, a.budget) == (16, 273)
        assert set(a.reasons.tolist()) == {Reason.ALL}

    def test_frames_under_each_other(self):
        (a,) = layer().allocate(self.relevance(torch.rand(1, 6, 4)), 5, (2, 3, 4))
        assert a.grid == (2, 3, 4)
        assert torch.equal(a.positions[:, 0], a.keep // 12)
        with pytest.raises(ValueError, match="does not fit"):
            layer().allocate(self.relevance(torch.rand(1, 6, 4)), 5, (4, 4))

    def test_nan_is_named(self):
        scores = torch.rand(1, 4, 4)
        scores[0, 1, 1] = float("nan")
        with pytest.raises(NonFiniteScores):
            layer().allocate(self.relevance(scores), 5)

    def test_saturated_relevance_is_still_ranked(self):
        """Logits order cells whose sigmoid is exactly 1."""
        logits = torch.arange(16.0).view(1, 4, 4) + 50
        r = self.relevance(torch.ones(1, 4, 4))._replace(logits=logits)
        (a,) = layer().allocate(r, 3)
        assert a.order.tolist() == [15, 14, 13]
        assert [a.reason_text(i) for i in range(3)] == [
            "rank 3 <= K 3",
            "rank 2 <= K 3",
            "rank 1 <= K 3",
        ]

    def test_void_whatever_peaks(self):
        flat, peak = torch.rand(1, 16, 16) * 0.3, torch.full((1, 16, 16), 0.02)
        peak[0, 5, 9] = 0.98
        (a,) = layer().allocate(self.relevance(flat, structured=False), 64)
        assert a.void
        assert torch.equal(a.keep, even_grid((16, 16), 64))
        assert not layer(void=False).allocate(self.relevance(flat, structured=False), 64)[0].void
        (b,) = layer().allocate(self.relevance(peak, peak, structured=False), 64)
        assert b.void  # a peak where there is no structure is a question's wish
        (c,) = layer().allocate(self.relevance(peak, peak, structured=True), 64)
        assert not c.void
        assert c.order[0] == 5 * 16 + 9

    def test_untrained_on_noise_is_void_whatever_the_question(self):
        model = layer(dim=192)
        for _ in range(3):
            out = model(torch.randn(1, 256, 192), question(dim=192)[0], torch.rand(1, 3, 512, 512), budget=64)
            assert out.allocation.void


class TestForward:
    def test_cardinality_and_gather(self):
        vision, (q, m) = torch.randn(2, 64, D), question(2)
        out = layer()(vision, q, page(batch=2), query_mask=m, budget=10)
        assert (out.tokens.shape, out.positions.shape) == ((2, 10, D), (2, 10, 2))
        assert (out.budgets.shape, out.mask.shape) == ((2, 10), (2, 10))
        for i, a in enumerate(out.allocations):
            assert torch.equal(out.tokens[i], vision[i, a.keep])
            assert torch.equal(out.positions[i], a.positions[:, 1:])
            assert torch.equal(out.budgets[i], a.relevance_of_kept())

    def test_ragged_batches_carry_a_mask(self):
        """ "auto" on a page and on an even ground: each spends its own, padding is zero."""
        model = layer()
        image = torch.cat((page(512, 512), torch.full((1, 3, 512, 512), 0.5)))
        out = model(torch.randn(2, 256, D), question(2)[0] * 0, image, budget="auto")
        kept = [a.kept for a in out.allocations]
        assert kept[0] != kept[1]
        assert out.mask.sum(1).tolist() == kept
        assert out.tokens.shape[1] == max(kept)
        for x in (out.tokens, out.positions, out.budgets):
            assert (x[~out.mask] == 0).all()

    def test_grid_from_pixels_and_misfit(self):
        q, _ = question()
        assert layer()(None, q, page(96, 224), budget=4).allocation.grid == (1, 3, 7)
        assert layer()(None, q, torch.rand(1, 3, 1, 1)).allocation.grid == (1, 1, 1)
        with pytest.raises(ValueError, match=r"60 vision tokens do not fill a grid of \(8, 8\)"):
            layer()(torch.randn(1, 60, D), q, page())

    def test_full_budget_is_the_identity(self):
        vision = torch.randn(1, 64, D)
        assert torch.equal(layer()(vision, question()[0], page(), budget=1.0).tokens, vision)

    def test_another_question_moves_the_choice(self):
        model, vision = layer(), torch.randn(1, 64, D)
        a, b = (model(vision, question()[0], page(), budget=16).allocation for _ in range(2))
        assert a.iou(b) < 1

    def test_gradient_from_kept_tokens(self):
        model = layer()
        model(torch.randn(1, 64, D), question()[0], page(), budget=10).tokens.square().sum().backward()
        for name, p in model.named_parameters():
            assert p.grad.isfinite().all(), name
            assert p.grad.abs().sum() > 0, name

    def test_no_state_from_the_last_call(self):
        model, inputs = layer(), (torch.randn(1, 64, D), question()[0], page())
        before = model(*inputs, budget=10).allocation.to_dict()
        model(torch.randn(1, 64, D), question()[0], page() * 0.5, budget=10)
        assert model(*inputs, budget=10).allocation.to_dict() == before
        assert set(vars(model)) == set(vars(layer()))


def test_loading_marks_as_trained_and_restores(tmp_path):
    a, b = layer(), layer()
    with torch.no_grad():
        for p in a.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    assert not b.trained
    b.load_state_dict(a.state_dict())
    assert b.trained
    texture, (q, m) = torch.rand(1, 13, 4, 4), question()
    assert torch.equal(a.relevance(texture, q, m).logits, b.relevance(texture, q, m).logits)


def test_a_question_for_the_guide_leaves_the_generator_to_others(monkeypatch):
    """What a thread draws while another one answers must not begin at the same seed again and again."""
    model = layer()
    model.load_state_dict(model.state_dict())
    (q, m), texture = question(), torch.rand(1, 13, 4, 4)
    cues = Cues(texture, q, m, guided=Coupling(torch.randn(4, 4), 0.2, 1.0, 0.0))
    first = cues.relevance(model)
    monkeypatch.setattr(torch.random, "fork_rng", None)
    assert torch.equal(first.logits, cues.relevance(model).logits)


def test_layers_built_side_by_side_leave_the_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        with ThreadPoolExecutor(4) as pool:
            built = list(pool.map(lambda _: layer(), range(16)))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    weights = [next(model.parameters()) for model in built]
    assert all(torch.equal(weight, weights[0]) and weight.dtype == torch.float32 for weight in weights)
