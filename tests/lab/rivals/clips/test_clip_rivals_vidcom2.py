"""VidCom2 by hand and by a loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from arr_coc_lab.rivals.clips import vidcom2
from arr_coc_lab.rivals.clips.vidcom2 import frame_counts, similarities, steady_channels
from each import each


def clip(steps: int = 6, cells: int = 10, width: int = 8, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    frames = torch.randn(steps, 1, width, generator=g)
    return frames + 0.7 * torch.randn(steps, cells, width, generator=g)


def test_channels_of_the_least_variance():
    # Variances over the four cells: 0 of the second, 1 of the fourth, 4 of the first, 9 of the third.
    x = torch.tensor([[[2.0, 5, 3, 1], [-2.0, 5, -3, -1]], [[2.0, 5, 3, 1], [-2.0, 5, -3, -1]]])
    assert steady_channels(x).tolist() == [1, 3]
    assert steady_channels(x[..., :3]).tolist() == [1]  # half, rounded down
    assert steady_channels(x[..., :1]).tolist() == [0]  # but one at least
    assert steady_channels(torch.ones(2, 3, 4)).tolist() == [0, 1]


def test_sums_of_kernels():
    # The two channels of four that hardly vary are (1, 0) in the first frame and (0, 1) in the second; the
    # clip's mean is (1/2, 1/2), at a squared distance of 1/2; the mean of each frame is the cell itself.
    x = torch.tensor([[[1.0, 0, 9, -9], [1.0, 0, -9, 9]], [[0.0, 1, 9, -9], [0.0, 1, -9, 9]]])
    whole, frame = similarities(x)
    assert frame.tolist() == [[5.0, 5.0], [5.0, 5.0]]
    want = sum(math.exp(-0.5 / (2 * a)) for a in (0.125, 0.25, 0.5, 1, 2))
    assert whole.flatten().tolist() == pytest.approx([want] * 4, rel=1e-6)


def test_counts_of_frames():
    # Means -4 and -4.01 are e^1 apart at a temperature of .01: p = e/(1+e), 1/(1+e), mean 1/2.
    similar = torch.tensor([[4.0] * 20, [4.01] * 20])
    p = math.e / (1 + math.e)
    want = [round(20 * 0.25 * (1 + p - 0.5)), round(20 * 0.25 * (1 + 1 - p - 0.5))]
    assert want == [6, 4]
    assert frame_counts(similar, 10).tolist() == want
    assert frame_counts(similar, 1).tolist() == [1, 1]  # at least one
    assert frame_counts(similar, 40).tolist() == [20, 15]  # at most all: the rate is cut at 1


def by_hand(x: np.ndarray, budget: int) -> set[tuple[int, int]]:
    """The method in loops."""
    steps, cells, width = x.shape
    variance = [np.mean((x[..., d] - x[..., d].mean()) ** 2) for d in range(width)]
    channels = sorted(range(width), key=lambda d: variance[d])[: width // 2]
    unit = {}
    for t in range(steps):
        for n in range(cells):
            v = x[t, n, channels]
            unit[t, n] = v / np.sqrt((v**2).sum())

    def kernels(a, b):
        return sum(math.exp(-((a - b) ** 2).sum() / (2 * 2.0**k)) for k in range(-3, 2))

    whole = sum(unit.values()) / (steps * cells)
    to_clip = {place: kernels(v, whole) for place, v in unit.items()}
    similar = {}
    for t, n in unit:
        centre = sum(unit[t, m] for m in range(cells)) / cells
        similar[t, n] = to_clip[t, n] + kernels(unit[t, n], centre)
    scores = np.array([-np.mean([to_clip[t, n] for n in range(cells)]) for t in range(steps)])
    p = np.exp((scores - scores.max()) / 0.01)
    p /= p.sum()
    share = budget / (steps * cells)
    kept: list[tuple[int, int]] = []
    firsts = set()
    for t in range(steps):
        count = max(1, round(cells * min(1.0, share * (1 + p[t] - p.mean()))))
        order = sorted(((t, n) for n in range(cells)), key=similar.__getitem__)
        kept += order[:count]
        firsts.add(order[0])
    while len(kept) > budget:
        loose = [place for place in kept if place not in firsts] or kept
        kept.remove(max(loose, key=similar.__getitem__))
    while len(kept) < budget:
        kept.append(min((place for place in unit if place not in kept), key=similar.__getitem__))
    return set(kept)


@each("budget", [3, 6, 7, 15, 31, 52, 59])
@each("seed", [0, 1])
def test_against_the_loop(budget, seed):
    x = clip(seed=seed)
    want = by_hand(x.double().numpy(), budget)
    assert set(map(tuple, vidcom2(x, budget).nonzero().tolist())) == want


def test_a_frame_that_stands_out_gets_more():
    x = torch.ones(5, 16, 8) + 0.05 * torch.randn(5, 16, 8, generator=torch.Generator().manual_seed(0))
    x[3] *= -1
    # p is 1 for that frame: .25 * 16 * (1 + 1 - 1/5) = 7.2 and .25 * 16 * (1 - 1/5) = 3.2, one to be added.
    counts = vidcom2(x, 20).sum(1).tolist()
    assert counts[3] >= 7
    assert sum(counts) == 20
    assert min(counts) == 3


def test_no_frame_is_empty_while_there_is_one_for_each():
    x = clip(steps=8, cells=6, seed=4)
    for budget in range(8, 49):
        assert vidcom2(x, budget).any(1).all()
