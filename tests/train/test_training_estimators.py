"""Estimators: what each keeps, its gradient by hand and through a frozen model, and that it learns."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from torch import Tensor

from arr_coc.choose.attending import NonFiniteScores, compute_retention_mask, gate, soft_top_k
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.texture import generate_texture_array
from arr_coc.families import adapter_for
from arr_coc.train.losses import ESTIMATORS, GatedCells, gated_cells, policy_loss
from each import each
from tiny import WIDTH, picture, prompts, tiny

GATED = ("straight-through", "gumbel")
NOISY = ("gumbel", "reinforce")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=seeded(seed))


def kept_mask(choice: GatedCells, cells: int) -> Tensor:
    return torch.zeros(len(choice.keep), cells).scatter(1, choice.keep, 1.0)


@each("estimator", ESTIMATORS)
class TestEvery:
    @each("count", [1, 5, 29, 30])
    def test_cardinality(self, estimator, count):
        choice = gated_cells(draw(3, 30), count, estimator, generator=seeded())
        assert choice.keep.shape == (3, count)
        assert choice.keep.dtype == torch.long
        assert (choice.keep.diff(dim=1) > 0).all()
        assert ((choice.keep >= 0) & (choice.keep < 30)).all()
        assert (choice.gates is None) == (estimator not in GATED)
        assert (choice.log_prob is None) == (estimator != "reinforce")

    def test_outside_of_training_it_is_the_plain_top_k_with_stable_ties(self, estimator):
        logits = draw(4, 30).mul(2).round()  # many ties
        choice = gated_cells(logits, 7, estimator, training=False)
        assert torch.equal(kept_mask(choice, 30).bool(), compute_retention_mask(logits, 7))
        assert choice.gates is None
        assert choice.log_prob is None
        assert gated_cells(torch.zeros(1, 5), 2, estimator, training=False).keep.tolist() == [[0, 1]]

    def test_gates_are_the_mask_of_what_is_kept_to_the_last_bit(self, estimator):
        for logits in (draw(3, 30), 50 * draw(3, 30), torch.zeros(3, 30)):
            choice = gated_cells(logits.requires_grad_(), 7, estimator, generator=seeded())
            if choice.gates is not None:
                assert torch.equal(choice.gates, kept_mask(choice, 30))

    def test_deterministic_from_the_generator(self, estimator):
        a, b = (gated_cells(draw(2, 64), 9, estimator, generator=seeded(3)) for _ in range(2))
        assert torch.equal(a.keep, b.keep)
        before = torch.get_rng_state()
        other = gated_cells(draw(2, 64), 9, estimator, generator=seeded(4))
        assert torch.equal(before, torch.get_rng_state())
        assert torch.equal(a.keep, other.keep) == (estimator not in NOISY)

    @each("cells", [1024, 4096])
    def test_saturated_logits_have_finite_values_and_gradients(self, estimator, cells):
        logits = draw(2, cells).sign().mul(50).requires_grad_()
        choice = gated_cells(logits, 273, estimator, generator=seeded())
        ways = [way for way in (choice.gates, choice.log_prob) if way is not None]
        assert all(way.isfinite().all() for way in ways)
        if ways:
            (ways[0] * draw(*ways[0].shape, seed=1)).sum().backward()
            assert logits.grad.isfinite().all()

    def test_half_precision_is_computed_in_float32(self, estimator):
        half = draw(2, 64).bfloat16().requires_grad_()
        low = gated_cells(half, 9, estimator, generator=seeded())
        full = gated_cells(half.detach().float(), 9, estimator, generator=seeded())
        assert torch.equal(low.keep, full.keep)
        for way, same in ((low.gates, full.gates), (low.log_prob, full.log_prob)):
            if way is not None:
                assert way.dtype == torch.float32
                assert torch.equal(way, same)
                way.sum().backward()
                assert half.grad.dtype == torch.bfloat16

    def test_exception(self, estimator):
        with pytest.raises(ValueError, match="cannot keep 9 of 8"):
            gated_cells(torch.zeros(2, 8), 9, estimator)
        with pytest.raises(NonFiniteScores, match="1 of 8"):
            gated_cells(torch.tensor([[0.0] * 7 + [math.nan]]), 2, estimator)
        with pytest.raises(ValueError, match=r"shape \(1, 2, 4\); pass \[Q, N\]"):
            gated_cells(torch.zeros(1, 2, 4), 2, estimator)
        with pytest.raises(ValueError, match="temperature 0 is not above 0"):
            gated_cells(torch.zeros(1, 8), 2, estimator, temperature=0)


def test_exception_names_the_estimators():
    with pytest.raises(ValueError, match=r"unknown estimator 'ste'; choose one of straight-through, gumbel"):
        gated_cells(torch.zeros(1, 8), 2, "ste")
    with pytest.raises(ValueError, match=r"\[\(2,\), \(2,\), \(3,\)\]; pass one number per question"):
        policy_loss(torch.zeros(2), torch.zeros(2), torch.zeros(3))


class TestStraightThrough:
    def test_gradient_by_hand(self):
        # d log sigmoid(s) / ds = sigmoid(-s): 1/2 at 0, 1/4 at log 3. The cell at -1 is dropped.
        s = torch.tensor([[0.0, -1.0, math.log(3.0)]], requires_grad=True)
        choice = gated_cells(s, 2, "straight-through")
        assert choice.keep.tolist() == [[0, 2]]
        (choice.gates * torch.tensor([3.0, 5.0, 8.0])).sum().backward()
        assert torch.allclose(s.grad, torch.tensor([[1.5, 0.0, 2.0]]))

    def test_it_is_the_gate_of_the_relevance(self):
        s, same = draw(1, 20).requires_grad_(), draw(1, 20).requires_grad_()
        choice = gated_cells(s, 6, "straight-through")
        loss = draw(6, seed=1)
        (choice.gates[0, choice.keep[0]] * loss).sum().backward()
        (gate(same.sigmoid())[0, choice.keep[0]] * loss).sum().backward()
        assert torch.allclose(s.grad, same.grad, atol=1e-6)

    def test_hopeless_cells_that_are_kept_still_learn(self):
        s = torch.full((1, 4), -50.0, requires_grad=True)  # here `gate` has no gradient
        gated_cells(s, 2, "straight-through").gates.sum().backward()
        assert s.grad.tolist() == [[1, 1, 0, 0]]


class TestGumbel:
    def test_gradient_is_that_of_the_relaxed_top_k(self):
        s, same, loss = draw(2, 20).requires_grad_(), draw(2, 20).requires_grad_(), draw(2, 20, seed=1)
        (gated_cells(s, 6, "gumbel", temperature=0.7, generator=seeded(2)).gates * loss).sum().backward()
        noise = -torch.empty(2, 20).exponential_(generator=seeded(2)).log()
        (soft_top_k(same / 0.7 + noise, 6) * loss).sum().backward()
        assert torch.allclose(s.grad, same.grad, atol=1e-6)

    def test_dropped_cells_learn_from_the_kept_and_all_moves_sum_to_none(self):
        s = draw(1, 20).requires_grad_()
        choice = gated_cells(s, 6, "gumbel", generator=seeded())
        choice.gates.gather(1, choice.keep).sum().backward()  # a loss that sees kept cells alone
        kept = kept_mask(choice, 20).bool()
        assert (s.grad[kept] > 0).all()
        assert (s.grad[~kept] < 0).all()
        assert s.grad.sum().abs() < 1e-6


class TestReinforce:
    S = torch.tensor([[0.4, -0.3, 0.9, 0.1]])
    T = 0.8

    def probability(self, order: tuple[int, ...], s: Tensor) -> Tensor:
        """Cells drawn one by one in proportion to exp(s / T) among those left."""
        weight, p = (s / self.T).exp(), torch.ones(())
        for step, cell in enumerate(order):
            left = [j for j in range(len(s)) if j not in order[:step]]
            p = p * weight[cell] / weight[left].sum()
        return p

    def sample(self, logits: Tensor, draws: int, seed: int = 0) -> GatedCells:
        rows = logits.expand(draws, -1)
        return gated_cells(rows, 2, "reinforce", temperature=self.T, generator=seeded(seed))

    def test_log_prob_is_that_of_an_order_of_what_was_kept_and_comes_as_often(self):
        choice = self.sample(self.S, 40_000)
        kept, p = choice.keep, choice.log_prob.exp()
        counted = 0
        for order in permutations(range(4), 2):
            expected = self.probability(order, self.S[0])
            drawn = (kept == torch.tensor(sorted(order))).all(1) & ((p - expected).abs() < 1e-5)
            assert abs(drawn.float().mean() - expected) < 5 * math.sqrt(expected / 40_000)
            counted += int(drawn.sum())
        assert counted == 40_000

    @pytest.mark.slow
    @pytest.mark.parametrize("baseline", [0.0, 0.6])
    def test_policy_loss_is_unbiased(self, baseline):
        """The mean over many draws is the gradient of the expected cost, by enumeration."""
        costs = {(0, 1): 0.9, (0, 2): 0.1, (0, 3): 0.7, (1, 2): 0.5, (1, 3): 1.0, (2, 3): 0.2}
        exact = self.S.clone().requires_grad_()
        sum(
            self.probability(order, exact[0]) * costs[min(order), max(order)]
            for order in permutations(range(4), 2)
        ).backward()
        s = self.S.clone().requires_grad_()
        choice = self.sample(s, 200_000, seed=1)
        cost = torch.tensor([costs[min(a, b), max(a, b)] for a, b in choice.keep.tolist()])
        policy_loss(cost, torch.full_like(cost, baseline), choice.log_prob).backward()
        assert exact.grad.abs().max() > 0.05
        assert torch.allclose(s.grad, exact.grad, atol=6e-3)

    def test_policy_loss_by_hand(self):
        log_prob = torch.tensor([-1.0, -2.0], requires_grad=True)
        cost = torch.tensor([3.0, 1.0], requires_grad=True)
        loss = policy_loss(cost, torch.tensor([1.0, 2.0]), log_prob)
        loss.backward()
        assert loss == (2 * -1 + -1 * -2) / 2
        assert log_prob.grad.tolist() == [1.0, -0.5]
        assert cost.grad is None


@pytest.mark.parametrize("estimator", NOISY)
def test_the_first_cell_is_drawn_in_proportion_to_the_sharpened_relevance(estimator):
    s = draw(1, 6)
    kept = gated_cells(s.expand(40_000, -1), 1, estimator, temperature=0.6, generator=seeded()).keep.flatten()
    share = kept.bincount(minlength=6) / 40_000
    assert torch.allclose(share, (s[0] / 0.6).softmax(0), atol=0.0125)


class TestBandit:
    """Keep 3 of 12 cells: the first three are worth 1 each, all others -1 and start ahead."""

    WORTH = torch.tensor([1.0] * 3 + [-1.0] * 9)

    def learn(self, estimator: str, steps: int = 300) -> Tensor:
        logits = torch.linspace(-0.5, 0.5, 12).repeat(4, 1).requires_grad_()
        optimizer, generator = torch.optim.Adam([logits], 0.05), seeded()
        for _ in range(steps):
            choice = gated_cells(logits, 3, estimator, generator=generator)
            gates = kept_mask(choice, 12) if choice.gates is None else choice.gates
            cost = -(gates * self.WORTH).sum(1)
            if choice.log_prob is not None:
                best = gated_cells(logits, 3, estimator, training=False)
                cost = policy_loss(cost, -(kept_mask(best, 12) * self.WORTH).sum(1), choice.log_prob)
            if cost.requires_grad:
                optimizer.zero_grad()
                cost.mean().backward()
                optimizer.step()
        return logits.detach()

    @pytest.mark.slow
    @pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if e != "scores-only"])
    def test_learns_what_is_worth_keeping(self, estimator):
        kept = gated_cells(self.learn(estimator), 3, estimator, training=False).keep
        assert kept.tolist() == [[0, 1, 2]] * 4

    def test_scores_only_does_not_move(self):
        assert torch.equal(self.learn("scores-only", 20), torch.linspace(-0.5, 0.5, 12).repeat(4, 1))


@pytest.fixture
def answering():
    """A frozen model, an answer it should give, and the layer that chooses 8 of 36 cells for it.

    The layer is nudged off its untrained start, where the mirrored halves of its nets cancel in the gradient
    of the layers before them (they learn from the second step on).
    """
    built = tiny("qwen3_vl")
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, [("Which one is red?", [picture(1)])])
    with torch.no_grad():
        features = adapter.features(inputs)
    layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH))
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            parameter.add_(0.05 * draw(*parameter.shape, seed=i))
    ids = inputs["input_ids"]
    query = built.model.get_input_embeddings()(ids[adapter.question_mask(ids)])[None]
    grid = features.grids[0][1:]
    texture = generate_texture_array(adapter.images(inputs, features)[0][None], grid, layer.config.channels)
    words = torch.ones(query.shape[:2], dtype=torch.bool)
    logits = layer.relevance(texture, query, words, features.cell_tokens(0)[None]).logits.flatten(1)

    answer = torch.tensor([built.processor.tokenizer.encode("left")])
    whole = inputs | {
        "input_ids": torch.cat((ids, answer), 1),
        "attention_mask": torch.ones(1, ids.shape[1] + answer.shape[1], dtype=torch.long),
        "mm_token_type_ids": torch.cat((inputs["mm_token_type_ids"], torch.zeros_like(answer)), 1),
        "labels": torch.cat((torch.full_like(ids, -100), answer), 1),
    }

    def cost(choice: GatedCells, vision=features) -> Tensor:
        """Cross-entropy of the answer from the kept cells."""
        vision = vision if choice.gates is None else vision.scale(list(choice.gates))
        return built.model(**adapter.compact(whole, vision, list(choice.keep), use_cache=False).kwargs).loss

    return layer, logits, features, cost


def sizes(layer: torch.nn.Module) -> dict[str, float]:
    """Sum of absolute gradients of every parameter."""
    grads = {name: p.grad for name, p in layer.named_parameters()}
    assert all(g is not None and g.isfinite().all() for g in grads.values()), grads
    return {name: float(g.abs().sum()) for name, g in grads.items()}


class TestThroughAFrozenModel:
    def test_gathering_by_detached_indices_trains_nothing(self, answering):
        layer, logits, features, cost = answering
        tokens = [image.clone().requires_grad_() for image in features.tokens]
        changed = type(features)(tokens, features.levels, features.grids, features.cells, features.kind)
        index = logits.topk(8).indices.detach().sort().values
        cost(GatedCells(index), changed).backward()
        assert tokens[0].grad[index[0]].abs().sum() > 0  # the loss does see the kept tokens
        assert all(p.grad is None for p in layer.parameters())

    def test_scores_only_trains_nothing(self, answering):
        _, logits, _, cost = answering
        assert not cost(gated_cells(logits, 8, "scores-only")).requires_grad

    @pytest.mark.parametrize("estimator", [e for e in ESTIMATORS if e != "scores-only"])
    def test_every_scorer_parameter_receives_a_gradient(self, answering, estimator):
        layer, logits, _, cost = answering
        choice = gated_cells(logits, 8, estimator, generator=seeded())
        loss = cost(choice)
        if choice.log_prob is not None:
            baseline = cost(gated_cells(logits, 8, estimator, training=False))
            assert loss != baseline
            loss = policy_loss(loss[None], baseline[None], choice.log_prob)
        loss.backward()
        strengths = sizes(layer)
        noise = 1e-6 * max(strengths.values())
        silent = {name for name, size in strengths.items() if size <= noise}
        # The last bias moves all cells alike, which does not change what is drawn.
        assert silent == (set() if estimator == "straight-through" else {"balancer.bias"}), strengths
        start = layer.balancer.start.grad
        # Gates and focus act on scores; compress and exploit decide how many and how.
        assert (start[[0, 1, 2, 5]] != 0).all()
        assert (start[3:5] == 0).all()

    def test_the_answer_is_the_same_with_gates(self, answering):
        _, logits, _, cost = answering
        gated = gated_cells(logits, 8, "straight-through")
        assert cost(gated) == cost(GatedCells(gated.keep))
