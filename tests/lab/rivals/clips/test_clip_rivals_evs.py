"""EVS by hand and by a loop."""

from __future__ import annotations

import math

import pytest
import torch

from arr_coc_lab.rivals.clips import evs


def test_by_hand():
    # 1 - cos to the frame before. Frame 1: 0, 1 (a right angle), 2 (turned round).
    # Frame 2: 1 - 1/sqrt(2) = .29, 0 (only longer), 1 - .6 = .4 by (3,4) and (1,0).
    clip = torch.tensor(
        [
            [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]],
            [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]],
            [[1.0, 1.0], [0.0, 9.0], [3.0, 4.0]],
        ]
    )
    first = [True] * 3
    assert evs(clip, 3).tolist() == [first, [False] * 3, [False] * 3]
    assert evs(clip, 5).tolist() == [first, [False, True, True], [False] * 3]
    assert evs(clip, 6).tolist() == [first, [False, True, True], [False, False, True]]
    assert evs(clip, 7).tolist() == [first, [False, True, True], [True, False, True]]
    assert evs(clip, 8).tolist() == [first, [True, True, True], [True, False, True]]  # a tie: the earlier


def test_a_static_clip_is_its_first_frame_and_then_ties():
    frame = torch.randn(12, 50, generator=torch.Generator().manual_seed(0))
    clip = frame.expand(6, 12, 50)
    assert evs(clip, 12).tolist() == [[True] * 12, *[[False] * 12] * 5]
    keep = evs(clip, 17)
    assert keep.flatten()[:17].all()
    assert int(keep.sum()) == 17


def test_one_cell_that_changes_is_kept_throughout():
    clip = torch.randn(1, 9, 30, generator=torch.Generator().manual_seed(1)).expand(5, 9, 30).clone()
    clip[:, 4] = torch.randn(5, 30, generator=torch.Generator().manual_seed(2))
    keep = evs(clip, 9 + 4)
    assert keep[0].all()
    assert keep[1:].nonzero()[:, 1].tolist() == [4] * 4


def test_less_than_a_frame_is_an_even_part_of_the_first():
    clip = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(0))
    assert evs(clip, 4).nonzero().tolist() == [[0, 1], [0, 3], [0, 5], [0, 7]]


@pytest.mark.parametrize("budget", [10, 23, 37])
def test_against_the_loop(budget):
    clip = torch.randn(5, 8, 6, generator=torch.Generator().manual_seed(3))
    x = clip.tolist()

    def cosine(a, b):
        dot = sum(p * q for p, q in zip(a, b, strict=True))
        return dot / math.sqrt(sum(p * p for p in a)) / math.sqrt(sum(q * q for q in b))

    change = {(0, n): math.inf for n in range(8)}
    for t in range(1, 5):
        for n in range(8):
            change[t, n] = 1 - cosine(x[t][n], x[t - 1][n])
    want = sorted(change, key=lambda place: -change[place])[:budget]
    assert sorted(map(tuple, evs(clip, budget).nonzero().tolist())) == sorted(want)
