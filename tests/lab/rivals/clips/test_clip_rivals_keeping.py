"""The arithmetic that methods for clips share, each by a small example or a loop."""

from __future__ import annotations

import math
import random

import pytest
import torch

from arr_coc_lab.rivals.clips.keeping import (
    apart,
    apportion,
    best_of_each,
    check_clip,
    equal_counts,
    lowest,
    whole_frames,
)


class TestApart:
    def test_it_is_one_less_the_cosine(self):
        a, b = torch.tensor([[3.0, 4.0], [1.0, 0.0], [1.0, 1.0]]), torch.tensor([[2.0, 0.0]])
        assert apart(a, b).tolist() == pytest.approx([0.4, 0.0, 1 - 1 / math.sqrt(2)], abs=1e-6)
        assert apart(a[:1], -a[:1]).tolist() == pytest.approx([2.0])

    def test_equal_vectors_are_exactly_together(self):
        x = torch.randn(500, 33, generator=torch.Generator().manual_seed(0))
        assert apart(x, x.clone()).eq(0).all()
        assert (1 - torch.nn.functional.cosine_similarity(x, x)).ne(0).any()  # as it would be otherwise

    def test_nothing_is_apart_from_everything(self):
        zero, one = torch.zeros(1, 3), torch.ones(1, 3)
        assert apart(zero, one).tolist() == apart(zero, zero).tolist() == [1.0]


class TestApportion:
    def test_largest_remainder(self):
        # Shares of 7 by 5:3:2 are 3.5, 2.1, 1.4: 3, 2, 1, and the one that is over goes to the .5.
        assert apportion(torch.tensor([5.0, 3.0, 2.0]), 7, most=9).tolist() == [4, 2, 1]

    def test_at_least_one_each_first(self):
        # 1 each, then 4 by 5:3:2 are 2.0, 1.2, 0.8: 2, 1, 0 and one for the .8.
        assert apportion(torch.tensor([5.0, 3.0, 2.0]), 7, most=9, least=1).tolist() == [3, 2, 2]

    def test_less_than_one_each_goes_by_weight(self):
        assert apportion(torch.tensor([5.0, 3.0, 2.0]), 2, most=9, least=1).tolist() == [1, 1, 0]

    def test_a_full_frame_gives_to_the_others(self):
        # 10 by 8:1:1 are 8, 1, 1; the first takes 4, and the other 6 are shared by 1:1.
        assert apportion(torch.tensor([8.0, 1.0, 1.0]), 10, most=4).tolist() == [4, 3, 3]
        assert apportion(torch.tensor([8.0, 1.0, 1.0]), 12, most=4).tolist() == [4, 4, 4]

    def test_ties_go_to_the_earlier(self):
        assert apportion(torch.ones(4), 6, most=9).tolist() == [2, 2, 1, 1]

    def test_no_weight_is_the_same_for_all(self):
        assert apportion(torch.zeros(3), 6, most=9).tolist() == [2, 2, 2]
        assert apportion(torch.tensor([1.0, 0.0, 0.0]), 6, most=4).tolist() == [4, 1, 1]

    def test_it_sums_and_keeps_its_bounds(self):
        draw = random.Random(0)
        for _ in range(300):
            steps = draw.randint(1, 9)
            most = torch.tensor([draw.randint(0, 7) for _ in range(steps)])
            total = draw.randint(0, int(most.sum()))
            weights = torch.tensor([draw.choice((0.0, 1e-30, 0.5, draw.random())) for _ in range(steps)])
            for least in (0, 1):
                counts = apportion(weights, total, most, least)
                assert int(counts.sum()) == total
                assert (counts >= 0).all()
                assert (counts <= most).all()
                if least and total >= int(most.clamp(max=1).sum()):
                    assert (counts >= most.clamp(max=1)).all()


def test_equal_counts_spread_what_is_over():
    assert equal_counts(4, 8).tolist() == [2, 2, 2, 2]
    assert equal_counts(4, 10).tolist() == [2, 3, 2, 3]
    assert equal_counts(4, 2).tolist() == [0, 1, 0, 1]


def test_lowest_takes_tiers_first_and_ties_in_order():
    cost = torch.tensor([[3.0, 1.0], [1.0, 0.0]])
    assert lowest(cost, 2).tolist() == [[False, True], [False, True]]
    tier = torch.tensor([[0, 1], [1, 1]])
    assert lowest(cost, 2, tier).tolist() == [[True, False], [False, True]]


def test_best_of_each_frame():
    scores = torch.tensor([[1.0, 3.0, 3.0], [5.0, 5.0, 5.0], [1.0, 2.0, 3.0]])
    assert best_of_each(scores, torch.tensor([1, 2, 0])).tolist() == [
        [False, True, False],
        [True, True, False],
        [False, False, False],
    ]


def test_whole_frames_and_what_is_over():
    mask = whole_frames(torch.tensor([2, 0, 1]), (3, 1, 4), 6)
    assert mask.tolist() == [[False, True, False, True], [False] * 4, [True] * 4]
    assert whole_frames(torch.tensor([2, 0, 1]), (3, 1, 4), 99).all()


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (torch.ones(2, 2), r"attention has shape \(2, 2\); pass \[2, 3\]"),
        (torch.full((2, 3), torch.nan), "attention has 6 NaN"),
        (torch.full((2, 3), -0.5), "attention has -0.5; pass probabilities"),
    ],
)
def test_attention_is_checked(attention, message):
    with pytest.raises(ValueError, match=message):
        check_clip(torch.ones(2, 3, 4), 2, attention)
