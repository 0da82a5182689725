"""V-CAST by hand and by a loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from arr_coc_lab.rivals.clips import vcast
from arr_coc_lab.rivals.clips.vcast import cell_scores, frame_weights


def softmax(values: list[float]) -> list[float]:
    high = [math.exp(value / 0.7) for value in values]
    return [value / sum(high) for value in high]


def test_weights_of_a_turn():
    # Unit means (1,0), (0,1), (-1,0), (0,1): steps (-1,1), (-1,-1), (1,1): curvature 1 - 0 = 1 and 1 + 1 = 2.
    means = torch.tensor([[2.0, 0], [0, 3], [-1, 0], [0, 1]])
    spread = torch.tensor([[0.0, 0.5], [0.0, -0.5]])  # of two cells around each mean
    weights = frame_weights(means[:, None] + spread)
    assert weights.tolist() == pytest.approx(softmax([1, 1, 2, 1]), abs=1e-6)


def test_a_static_clip_has_equal_weights():
    frame = torch.randn(9, 20, generator=torch.Generator().manual_seed(0))
    assert frame_weights(frame.expand(7, 9, 20)).tolist() == pytest.approx([1 / 7] * 7)
    assert vcast(frame.expand(7, 9, 20), 14).sum(1).tolist() == [2] * 7


@pytest.mark.parametrize("steps", [1, 2])
def test_ends_alone(steps):
    clip = torch.randn(steps, 5, 4, generator=torch.Generator().manual_seed(0))
    assert frame_weights(clip).tolist() == pytest.approx([1 / steps] * steps)
    assert vcast(clip, 2 * steps).sum(1).tolist() == [2] * steps


def test_the_turn_gets_the_remainder():
    # Weights e^(1/.7) and e^(2/.7): .1637 three times and .509. 20 of 4 frames of 9: 1 each, then 16 by
    # those, 2.62 2.62 8.14 2.62; the third frame has room for 8, the others share 8 equally: 2.67 each.
    means = torch.tensor([[2.0, 0], [0, 3], [-1, 0], [0, 1]])
    clip = means[:, None] + 0.1 * torch.tensor([[0.0, k] for k in (-4, -3, -2, -1, 0, 1, 2, 3, 4)])
    assert vcast(clip, 20)[2].all()
    assert sorted(vcast(clip, 20).sum(1).tolist()) == [3, 4, 4, 9]
    # 10: 1 each, then 6: .98 .98 3.05 .98, so 3 for the third and the remainders go to the other three.
    assert vcast(clip, 10).sum(1).tolist() == [2, 2, 4, 2]
    assert int(vcast(clip, 2)[2].sum()) == 1  # .33 .33 1.02 .33


def test_scores_of_cells():
    # The mean of (4,0), (0,2), (2,1) is (2,1), g = (2,1)/sqrt(5). Cosines 2/sqrt(5), 1/sqrt(5), 1;
    # norms 4, 2, sqrt(5), min-max 1, 0, (sqrt(5) - 2)/2.
    scores = cell_scores(torch.tensor([[[4.0, 0], [0, 2], [2, 1]]]))
    root = math.sqrt(5)
    assert scores[0].tolist() == pytest.approx([2 - 2 / root, 1 - 1 / root, (root - 2) / 2], abs=1e-6)
    assert vcast(torch.tensor([[[4.0, 0], [0, 2], [2, 1]]]), 2).tolist() == [[True, True, False]]


def test_equal_cells_are_ties():
    assert vcast(torch.full((3, 30, 7), 0.3), 12).tolist() == [[n < 4 for n in range(30)]] * 3


@pytest.mark.parametrize("budget", [4, 7, 20, 41, 60])
def test_against_the_loop(budget):
    clip = torch.randn(7, 9, 5, generator=torch.Generator().manual_seed(5))
    x = clip.double().numpy()
    g = [frame.mean(0) / np.linalg.norm(frame.mean(0)) for frame in x]

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    turns = [1.0, *(1 - cosine(g[t] - g[t - 1], g[t + 1] - g[t]) for t in range(1, 6)), 1.0]
    weights = softmax(turns)
    counts = [0] * 7
    rest = budget
    if budget >= 7:
        counts, rest = [1] * 7, budget - 7
    shares = [rest * weight for weight in weights]
    assert max(count + share for count, share in zip(counts, shares, strict=True)) <= 9 or budget > 41
    if budget <= 41:
        floors = [math.floor(share) for share in shares]
        order = sorted(range(7), key=lambda t: floors[t] - shares[t])
        for t in order[: rest - sum(floors)]:
            floors[t] += 1
        counts = [count + extra for count, extra in zip(counts, floors, strict=True)]
        assert vcast(clip, budget).sum(1).tolist() == counts
    keep = vcast(clip, budget)
    for t in range(7):
        norms = [np.linalg.norm(v) for v in x[t]]
        score = [
            1 - cosine(v, g[t]) + (norm - min(norms)) / (max(norms) - min(norms))
            for v, norm in zip(x[t], norms, strict=True)
        ]
        best = sorted(range(9), key=lambda n: -score[n])[: int(keep[t].sum())]
        assert keep[t].nonzero().flatten().tolist() == sorted(best)
