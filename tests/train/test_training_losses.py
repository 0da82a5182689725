"""Losses: every formula by hand; laws of weights, soft maps and rows that ask for something absent."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.train.losses import recall, relevance_loss, selection_iou

LOG2, LOG3 = math.log(2.0), math.log(3.0)


def maps(q: int = 3, h: int = 4, w: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(q, h, w, generator=torch.Generator().manual_seed(seed))


def evidence() -> Tensor:
    """Three rows with 2, 6 and no cells."""
    there = torch.zeros(3, 4, 5, dtype=torch.bool)
    there[0, 1, 1:3] = True
    there[1, 2:, :3] = True
    return there


class TestOnEvidence:
    def test_by_hand(self):
        # sigmoid(log 3) = 3/4, so BCE is 8 log(4/3) on the evidence cell and log 2 on the cell at 0.
        # softmax is 3/4, 1/4.
        loss = relevance_loss(torch.tensor([[[LOG3, 0.0]]]), torch.tensor([[[True, False]]]))
        assert loss.item() == pytest.approx(4 * (8 * math.log(4 / 3) + LOG2) / 2 + math.log(4 / 3))

    def test_every_evidence_cell_of_the_batch_counts_the_same(self):
        s, t = maps(), evidence()
        truth = t.float()
        bce = F.binary_cross_entropy_with_logits(s, truth, pos_weight=torch.tensor(8.0))
        listwise = -s.flatten(1).log_softmax(1)[t.flatten(1)].sum() / 8
        assert torch.allclose(relevance_loss(s, t), 4 * bce + listwise)

    def test_a_row_without_any_has_only_the_bce(self):
        s, t = maps(1).requires_grad_(), torch.zeros(1, 4, 5, dtype=torch.bool)
        loss = relevance_loss(s, t)
        assert torch.allclose(loss, 4 * F.softplus(s).mean())
        loss.backward()
        assert (s.grad > 0).all()

    def test_gradient_is_finite_where_logits_saturate(self):
        s = (50 * maps().sign()).requires_grad_()
        relevance_loss(s, evidence()).backward()
        assert s.grad.isfinite().all()

    def test_half_precision_is_computed_in_float32(self):
        s = maps().bfloat16()
        loss = relevance_loss(s, evidence())
        assert loss.dtype == torch.float32
        assert loss == relevance_loss(s.float(), evidence())


class TestOnSoftMaps:
    def test_by_hand(self):
        # t = (0.5, 0.25) at s = (log 3, 0): BCE log(4/3)/2 + log(4)/2 and log 2; normalised t = (2/3, 1/3).
        loss = relevance_loss(torch.tensor([[[LOG3, 0.0]]]), torch.tensor([[[0.5, 0.25]]]))
        bce = (math.log(4 / 3) / 2 + math.log(4) / 2 + LOG2) / 2
        assert loss.item() == pytest.approx(4 * bce + 2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(4))

    def test_the_bce_is_least_at_the_map_itself(self):
        t = torch.full((1, 4, 5), 0.2)  # flat: the listwise term is least at any flat map
        s = t.logit().requires_grad_()
        relevance_loss(s, t).backward()
        assert s.grad.abs().max() < 1e-7

    def test_listwise_every_row_counts_the_same_whatever_its_mass(self):
        s, t = maps(2), maps(2, seed=1).sigmoid()
        t[1] = t[0] * 0.01
        both = relevance_loss(s, t)
        singles = [relevance_loss(s[i : i + 1], t[i : i + 1]) for i in range(2)]
        assert torch.allclose(both, (singles[0] + singles[1]) / 2)

    def test_an_empty_row_has_only_the_bce(self):
        s, t = maps(2), maps(2, seed=1).sigmoid()
        t[1] = 0
        bce = F.binary_cross_entropy_with_logits(s, t)
        share = t[0].flatten() / t[0].sum()
        listwise = -(share * s[0].flatten().log_softmax(0)).sum()
        assert torch.allclose(relevance_loss(s, t), 4 * bce + listwise)


@pytest.mark.parametrize("target", [evidence(), maps(seed=1).sigmoid()], ids=["evidence", "soft"])
class TestWeights:
    def test_equal_weights_change_nothing(self, target):
        for weight in (1.0, 0.1, 2.0):
            weighted = relevance_loss(maps(), target, torch.full((3,), weight))
            assert torch.allclose(weighted, relevance_loss(maps(), target))

    def test_weight_two_is_the_row_twice(self, target):
        twice = torch.tensor([0, 0, 1, 2])
        weighted = relevance_loss(maps(), target, torch.tensor([2.0, 1.0, 1.0]))
        assert torch.allclose(weighted, relevance_loss(maps()[twice], target[twice]))

    def test_weight_zero_is_no_row(self, target):
        weighted = relevance_loss(maps(), target, torch.tensor([1.0, 0.0, 1.0]))
        assert torch.allclose(weighted, relevance_loss(maps()[[0, 2]], target[[0, 2]]))

    def test_no_weight_at_all_is_no_loss(self, target):
        s = maps().requires_grad_()
        loss = relevance_loss(s, target, torch.zeros(3))
        loss.backward()
        assert loss == 0
        assert (s.grad == 0).all()

    @pytest.mark.parametrize("bad", [[1.0, -1.0, 1.0], [1.0, math.nan, 1.0]])
    def test_exception(self, target, bad):
        with pytest.raises(ValueError, match="not all finite and at least 0"):
            relevance_loss(maps(), target, torch.tensor(bad))
        with pytest.raises(ValueError, match=r"shape \(2,\); pass \[3\]"):
            relevance_loss(maps(), target, torch.ones(2))


class TestSelections:
    S = torch.tensor([[[3.0, 1.0, 2.0, 0.0]], [[0.0, 0.0, 0.0, 0.0]], [[1.0, 2.0, 3.0, 4.0]]])
    T = torch.tensor([[[True, True, False, False]], [[True, False, False, True]], [[False] * 4]])

    def test_iou_by_hand(self):
        # Row 0 keeps 0 and 2, one of its two: 1/3. Row 1 keeps 0 and 1, ties go to the earlier. Row 2 is out.
        assert selection_iou(self.S, self.T) == [1 / 3, 1 / 3]
        assert selection_iou(self.S, self.T, 1) == [1 / 2, 1 / 2]
        assert selection_iou(self.S, self.T, 3) == [2 / 3, 1 / 4]
        assert selection_iou(self.S, self.T, 99) == [2 / 4, 2 / 4]

    def test_recall_by_hand(self):
        assert recall(self.S, self.T, 1) == [0.5, 0.5]
        assert recall(self.S, self.T, 3) == [1.0, 0.5]
        assert recall(self.S, self.T, 99) == [1.0, 1.0]

    def test_nothing_to_find(self):
        assert selection_iou(self.S[2:], self.T[2:]) == recall(self.S[2:], self.T[2:], 2) == []

    @pytest.mark.parametrize("measure", [selection_iou, recall])
    def test_exception(self, measure):
        with pytest.raises(ValueError, match="cannot keep 0 of 4"):
            measure(self.S, self.T, 0)
        with pytest.raises(ValueError, match=r"the target is torch\.float32; pass bool"):
            measure(self.S, self.T.float(), 2)


@pytest.mark.parametrize("function", [relevance_loss, selection_iou])
def test_exception_names_both_shapes(function):
    with pytest.raises(ValueError, match=r"\(3, 4, 5\) and the target \(3, 5, 4\)"):
        function(maps(), torch.zeros(3, 5, 4, dtype=torch.bool))


@pytest.mark.parametrize("bad", [torch.full((3, 4, 5), 1.5), torch.full((3, 4, 5), math.nan)])
def test_exception_of_a_map_that_is_no_share(bad):
    with pytest.raises(ValueError, match=r"outside of \[0, 1\]"):
        relevance_loss(maps(), bad)
    with pytest.raises(ValueError, match=r"the target is torch\.int64"):
        relevance_loss(maps(), torch.ones(3, 4, 5, dtype=torch.long))
