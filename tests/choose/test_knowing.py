"""The three scorers: laws, untrained starts, gradients, learning."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from arr_coc.choose.filters import unit
from arr_coc.choose.knowing import (
    FLOOR,
    FOLD,
    PRESETS,
    InformationScorer,
    ParticipatoryScorer,
    PerspectivalScorer,
    automatic_rank,
    declared_channels,
    fold,
    pool_query,
    saliency,
    signs,
)
from arr_coc.choose.texture import channel_names, generate_texture_array
from each import each

D, H, W = 24, 4, 6


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def texture(batch=2, channels=13) -> torch.Tensor:
    return torch.rand(batch, channels, H, W)


def question(batch=2, length=5, dim=D) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, length, dim), torch.ones(batch, length, dtype=torch.bool)


def participatory(preset="net", dim=D) -> ParticipatoryScorer:
    return ParticipatoryScorer("mvp13", dim, rank=8, preset=preset)


def assert_every_gradient(module: torch.nn.Module, loss: torch.Tensor) -> None:
    loss.backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


class TestPoolQuery:
    x = torch.tensor([[[1.0], [2.0], [4.0], [100.0]]])
    mask = torch.tensor([[True, False, True, False]])

    def test_feature(self):
        assert pool_query(self.x, self.mask).item() == pytest.approx(2.5)
        assert pool_query(self.x, self.mask, "last").item() == pytest.approx(4.0)
        weight = torch.tensor([[3.0, 9.0, 1.0, 9.0]])
        assert pool_query(self.x, self.mask, "learned", importance=weight).item() == pytest.approx(7 / 4)

    @pytest.mark.parametrize("how", ["mean", "last"])
    def test_no_content_is_zero_and_padding_may_hold_anything(self, how):
        assert pool_query(self.x, self.mask & False, how).item() == 0
        assert pool_query(self.x[:, :0], self.mask[:, :0], how).item() == 0
        wild = self.x.clone()
        wild[0, 3] = float("nan")
        assert pool_query(wild, self.mask, how).isfinite().all()
        assert pool_query(wild, self.mask, "learned", importance=wild.squeeze(-1)).isfinite().all()

    @each(
        "wrong",
        [{"how": "sum"}, {"how": "contextual"}, {"how": "learned"}, {"importance": torch.ones(1, 4)}],
    )
    def test_exception(self, wrong):
        with pytest.raises(ValueError, match="pooling"):
            pool_query(self.x, self.mask, **wrong)


class TestNumbers:
    @each("value", [0.0, 1e-30, 1e4, 3e38])
    def test_unit_is_finite_at_any_scale(self, value):
        u = unit(torch.full((2, 8), value))
        assert u.isfinite().all()
        assert u.norm(dim=-1).max() <= 1 + 1e-5
        if value >= 1e-4:
            assert torch.allclose(u.norm(dim=-1), torch.ones(2))

    def test_signs_are_fixed_and_balanced(self):
        s = signs(13, 4096)
        assert s.unique().tolist() == [-1.0, 1.0]
        assert s.mean(1).abs().max() < 0.1
        assert (s @ s.T / 4096 - torch.eye(13)).abs().max() < 0.1
        assert torch.equal(s, signs(13, 4096))

    @each("dim", [300, 2048, 4096])
    def test_fold_keeps_cosines(self, dim):
        a, b = unit(torch.randn(50, dim)), unit(torch.randn(50, dim))
        mixed = unit(a + b)
        assert fold(a).shape == (50, FOLD)
        assert ((fold(a) * fold(mixed)).sum(-1) - (a * mixed).sum(-1)).abs().mean() < 0.1

    def test_fold_leaves_narrow_embeddings_alone(self):
        x = torch.randn(3, 192)
        assert fold(x) is x

    def test_automatic_rank(self):
        assert automatic_rank(192, 4) == 168
        assert automatic_rank(2048, 4) == automatic_rank(4096, 4) == 128
        assert automatic_rank(8, 4) == 256


class TestInformation:
    def score(self, image: torch.Tensor, grid=(4, 4), channels="mvp13") -> torch.Tensor:
        return InformationScorer(channels)(generate_texture_array(image, grid, channels))[0].detach()

    @pytest.mark.parametrize("channels", ["mvp13", "fast13"])
    def test_law_uniform_lowest_varied_higher(self, channels):
        x = torch.full((1, 3, 128, 128), 0.6)
        x[..., 32:64, 32:64] += 0.05 * torch.randn(3, 32, 32)
        x[..., 96:128, 96:128] = torch.rand(3, 32, 32)
        s = self.score(x.clamp(0, 1), channels=channels)
        assert s[0, 0] <= s.min() + 1e-6
        assert s[0, 0] == pytest.approx(FLOOR, abs=1e-3)
        assert s[0, 0] < s[1, 1] < s[3, 3]

    def test_law_holds_for_any_learned_weights(self):
        scorer = InformationScorer()
        flat, varied = torch.rand(1, 13, 1, 1).repeat(1, 1, 1, 2).split(1, dim=-1)
        names = channel_names()
        spread = [names.index(n) for n in ("sobel_x", "sobel_y", "sobel", "spread")]
        flat[:, spread], varied[:, spread] = 0, torch.tensor([0.1, 0.1, 0.2, 0.3]).view(1, 4, 1, 1)
        for _ in range(20):
            torch.nn.init.normal_(scorer.weight, std=5)
            # Other channels (colour, place, saliency) differ at will and change nothing.
            assert scorer(flat) < scorer(varied)
            assert scorer(flat).item() == pytest.approx(FLOOR, abs=1e-6)

    def test_softmax_entropy_would_break_the_law(self):
        """The formula the law warns of gives a flat cell the maximum; ours the minimum."""
        flat = torch.zeros(1, 13, 1, 1)
        p = flat.softmax(1)
        assert -(p * p.log()).sum() == pytest.approx(math.log(13), abs=1e-5)
        assert InformationScorer()(flat).item() == pytest.approx(FLOOR, abs=1e-6)

    def test_without_spread_channels_contrast_between_cells(self):
        x = torch.zeros(1, 3, 64, 64)
        x[..., 32:, 32:] = 1
        s = self.score(x, (8, 8), ["rgb"])
        assert s[0, 0] < s[4, 4]

    def test_gradient(self):
        scorer = InformationScorer()
        assert_every_gradient(scorer, scorer.logits(texture()).square().mean())


class TestPerspectival:
    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("channels", ["mvp13", "fast13"])
    def test_untrained_equals_the_saliency(self, preset, channels):
        t = texture()
        expected = FLOOR + (1 - 2 * FLOOR) * saliency(t, declared_channels(channels, "salient"))
        assert torch.allclose(PerspectivalScorer(channels, preset)(t), expected, atol=1e-5)

    def test_the_odd_cell_stands_out(self):
        x = torch.full((1, 3, 256, 256), 0.9)
        x[..., 64:96, 160:192] = torch.tensor([0.9, 0.1, 0.1]).view(3, 1, 1)
        s = PerspectivalScorer()(generate_texture_array(x, (8, 8)))[0]
        assert s.argmax() == 2 * 8 + 5
        assert s.max() > 0.9
        assert s.median() < 0.3

    @pytest.mark.parametrize("preset", PRESETS)
    def test_gradient(self, preset):
        scorer = PerspectivalScorer(preset=preset)
        assert_every_gradient(scorer, scorer.logits(texture()).square().mean())

    def test_the_net_is_13_32_16_1(self):
        shapes = [tuple(p.shape) for p in PerspectivalScorer().parameters() if p.ndim == 4]
        assert shapes == [(32, 13, 3, 3), (16, 32, 3, 3), (1, 16, 3, 3)]


@pytest.mark.parametrize("preset", PRESETS)
class TestParticipatory:
    def test_cardinality(self, preset):
        q, m = question(dim=D)
        scorer = participatory(preset)
        for vision in (None, torch.randn(2, H * W, D)):
            s = scorer(texture(), q, m, vision)
            assert s.shape == (2, H, W)
            assert ((s >= 0) & (s <= 1)).all()

    def test_law_another_question_moves_the_map(self, preset):
        t, v, (q, m) = texture(1), torch.randn(1, H * W, D), question(1)
        scorer = participatory(preset)
        for vision in (None, v):
            difference = scorer(t, q, m, vision) - scorer(t, torch.randn_like(q), m, vision)
            assert difference.abs().max() > 1e-3

    def test_law_padding_changes_nothing(self, preset):
        t, v, (q, m) = texture(1), torch.randn(1, H * W, D), question(1, 3)
        scorer = participatory(preset)
        if preset == "net":
            torch.nn.init.normal_(scorer.neighbours)
        plain = scorer(t, q, m, v)
        for places in ([0, 1, 2], [3, 4, 5], [0, 2, 5], [1, 4, 5]):
            padded, mask = torch.full((1, 6, D), 1e4), torch.zeros(1, 6, dtype=torch.bool)
            padded[:, places], mask[:, places] = q, True
            assert torch.allclose(scorer(t, padded, mask, v), plain, atol=1e-6)

    def test_padding_may_hold_nan(self, preset):
        t, (q, m) = texture(1), question(1)
        q[0, 4], m[0, 4] = float("nan"), False
        assert participatory(preset)(t, q, m).isfinite().all()

    def test_no_content_is_neutral(self, preset):
        t, v, (q, m) = texture(), torch.randn(2, H * W, D), question()
        m[1] = False
        s = participatory(preset)(t, q, m, v)
        assert (s[1] == 0.5).all()
        assert (s[0] != 0.5).any()
        assert (participatory(preset)(t, q[:, :0], m[:, :0], v) == 0.5).all()

    @each("scale", [0.0, 1e-20, 1e4, 1e30])
    def test_finite_for_any_finite_input(self, preset, scale):
        q, m = question()
        scorer = participatory(preset)
        s = scorer(texture(), q * scale, m, torch.randn(2, H * W, D) * scale)
        scorer.logits(texture(), q * scale, m, torch.randn(2, H * W, D) * scale).sum().backward()
        assert s.isfinite().all()
        assert all(p.grad.isfinite().all() for p in scorer.parameters())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_inputs(self, preset, dtype):
        t, v, (q, m) = texture(), torch.randn(2, H * W, D), question()
        exact = participatory(preset)
        half = exact(t.to(dtype), q.to(dtype), m, v.to(dtype))
        assert half.dtype == torch.float32
        assert torch.allclose(half, exact(t, q, m, v), atol=0.05)

    def test_scale_of_the_embeddings_does_not_matter(self, preset):
        t, v, (q, m) = texture(), torch.randn(2, H * W, D), question()
        scorer = participatory(preset)
        assert torch.allclose(scorer(t, q, m, v), scorer(t, q * 7, m, v * 100), atol=1e-5)

    def test_untrained_finds_the_cell_that_is_a_word_of_the_question(self, preset):
        dim = 192
        t, v, (q, m) = torch.full((1, 13, H, W), 0.5), torch.randn(1, H * W, dim), question(1, dim=dim)
        v[0, 9] = q[0, 2]
        scorer = ParticipatoryScorer("mvp13", dim, preset=preset)
        assert scorer(t, q, m, v).argmax() == 9

    def test_cells_are_scored_each_by_its_own(self, preset):
        """Moving tokens to other cells moves their coupling with them (permutation equivariance)."""
        t, v, (q, m) = torch.full((1, 13, H, W), 0.5), torch.randn(1, H * W, D), question(1)
        scorer, move = participatory(preset), torch.randperm(H * W)
        a = scorer(t, q, m, v).flatten()[move]
        assert torch.allclose(scorer(t, q, m, v[:, move]).flatten(), a, atol=1e-5)

    def test_gradient(self, preset):
        t, v, (q, m) = texture(), torch.randn(2, H * W, D), question()
        scorer = participatory(preset)
        assert_every_gradient(scorer, scorer.logits(t, q, m, v).square().mean())


def test_rank_must_divide_into_heads():
    with pytest.raises(ValueError, match="rank 10"):
        ParticipatoryScorer("mvp13", 16, rank=10, heads=4)


@pytest.mark.slow
def test_learns_conjunction_through_fixed_roles():
    """A cell is a sum of turned words; "red circle" must find cells that are both, not one of them.

    The words of a question stand among function words; roles are random orthogonal matrices. Held-out
    pages.
    """
    dim, words, cells = 32, 6, 36
    e = torch.linalg.qr(torch.randn(dim, dim)).Q[: 2 * words + 4]  # colours, shapes, function words
    role = [torch.linalg.qr(torch.randn(dim, dim)).Q for _ in range(2)]

    def batch(size=16):
        colour, shape = torch.randint(words, (2, size, cells))
        full = (torch.rand(size, cells) < 0.8).unsqueeze(-1)
        v = (e[colour] @ role[0].T + e[words + shape] @ role[1].T) * full + 0.02 * torch.randn(
            size, cells, dim
        )
        pick = (torch.rand(size, cells) * full.squeeze(-1)).argmax(1)
        c, s = (x.gather(1, pick[:, None]).squeeze(1) for x in (colour, shape))
        filler = e[2 * words + torch.randint(4, (size, 4))]
        q = torch.cat((filler[:, :3], e[c][:, None], e[words + s][:, None], filler[:, 3:]), dim=1)
        truth = (colour == c[:, None]) & (shape == s[:, None]) & full.squeeze(-1)
        return torch.full((size, 13, 6, 6), 0.5), q, torch.ones(q.shape[:2], dtype=torch.bool), v, truth

    scorer = ParticipatoryScorer("mvp13", dim, rank=32)
    optimizer = torch.optim.Adam(scorer.parameters(), lr=0.02)

    def separation() -> float:
        """Share of (evidence, other) pairs of cells in the right order."""
        *inputs, truth = batch(64)
        with torch.no_grad():
            z = scorer.logits(*inputs).flatten(1)
        right = (z[:, :, None] > z[:, None, :]).float()
        pairs = truth[:, :, None] & ~truth[:, None, :]
        return (right * pairs).sum().item() / pairs.sum().item()

    start = separation()
    for _ in range(70):
        *inputs, truth = batch()
        loss = F.binary_cross_entropy_with_logits(
            scorer.logits(*inputs).flatten(1), truth.float(), pos_weight=torch.tensor(8.0)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert start < 0.8
    assert separation() > 0.98


def test_linear_preset_is_about_a_hundred_parameters():
    scorers = (
        InformationScorer(),
        PerspectivalScorer(preset="linear"),
        participatory("linear", 4096),
    )
    assert sum(p.numel() for s in scorers for p in s.parameters()) < 100
