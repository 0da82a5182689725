"""AKS by hand and by a loop."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from arr_coc_lab.rivals.clips import aks
from arr_coc_lab.rivals.clips.aks import segments


def frames(keep: torch.Tensor) -> list[int]:
    return keep.all(1).nonzero().flatten().tolist()


def test_a_peak_keeps_the_clip_whole():
    # Ten frames of which one scores: its mean of one less the mean of all is 1 - .1 = .9.
    scores = torch.tensor([0.0] * 6 + [5.0] + [0.0] * 3)
    assert segments(scores, 1) == [(0, 10, 0)]
    assert frames(aks(scores, (10, 2, 2), 4)) == [6]


def test_two_peaks_are_two_segments():
    # Two frames to choose, both high: the two best average 1, all 2/16; 1 - .125 > .8, so one segment.
    near = torch.zeros(16)
    near[[2, 3]] = 1.0
    assert segments(near, 2) == [(0, 16, 0)]
    assert frames(aks(near, (16, 1, 3), 6)) == [2, 3]
    # Others of half their height: the two best less the mean are below .8, so the clip is halved.
    wide = torch.full((16,), 0.5)
    wide[[2, 3, 12]] = torch.tensor([1.0, 0.9, 0.8])
    wide[0] = 0.0
    assert segments(wide, 2) == [(0, 8, 1), (8, 16, 1)]
    assert frames(aks(wide, (16, 1, 3), 6)) == [2, 12]  # coverage: 3 scores more than 12, and is left


def test_depth_is_at_most_five():
    scores = torch.arange(400.0) % 7
    parts = segments(scores, 64)
    assert max(part.depth for part in parts) == 5
    assert len(parts) == 32
    keep = aks(scores, (400, 1, 2), 128)
    assert int(keep.all(1).sum()) == 64
    assert [int(keep[start:stop].all(1).sum()) for start, stop, _ in parts] == [2] * 32


@pytest.mark.parametrize(
    ("count", "depth"), [(1, 0), (2, 1), (3, 1), (4, 2), (16, 4), (31, 4), (32, 5), (64, 5)]
)
def test_segments_are_due_a_frame_each(count, depth):
    assert {part.depth for part in segments(torch.arange(256.0) % 5, count)} == {depth}


def test_segments_tile_the_clip():
    g = torch.Generator().manual_seed(0)
    for steps in (1, 2, 3, 7, 33, 100):
        for count in (1, 3, 8, 40):
            parts = segments(torch.rand(steps, generator=g) ** 8, count)
            assert parts[0].start == 0
            assert parts[-1].stop == steps
            assert all(one.stop == two.start for one, two in pairwise(parts))
            assert all(part.stop > part.start and part.depth <= 5 for part in parts)


def test_what_the_rounding_leaves_goes_by_score():
    # Three frames: two halves are due 3 / 2 = 1 each; the third is the best of the rest.
    scores = torch.tensor([0.0, 0.6, 0.9, 0.5, 0.5, 1.0, 0.4, 0.95])
    assert segments(scores, 3) == [(0, 4, 1), (4, 8, 1)]
    assert frames(aks(scores, (8, 1, 1), 3)) == [2, 5, 7]


def test_what_is_over_buys_cells_of_the_next_frame():
    scores = torch.tensor([0.1, 0.9, 0.5, 0.0])
    keep = aks(scores, (4, 1, 4), 6)
    assert keep.sum(1).tolist() == [0, 4, 2, 0]
    assert keep[2].tolist() == [False, True, False, True]
    assert aks(scores, (4, 1, 4), 2).sum(1).tolist() == [0, 2, 0, 0]  # not even one frame


def test_scores_have_no_scale():
    scores = torch.rand(40, generator=torch.Generator().manual_seed(3))
    want = aks(scores, (40, 2, 2), 50)
    assert torch.equal(aks(scores * 8 - 3, (40, 2, 2), 50), want)


def test_equal_scores_are_spread_by_the_halves():
    assert frames(aks(torch.ones(16), (16, 1, 1), 4)) == [0, 4, 8, 12]


@pytest.mark.parametrize("count", [4, 8, 32])
def test_against_the_loop(count):
    """The published recursion, level by level, where counts are powers of two."""
    g = torch.Generator().manual_seed(count)
    scores = torch.rand(128, generator=g) ** 6
    low, high = float(scores.min()), float(scores.max())
    scaled = [(float(value) - low) / (high - low) for value in scores]
    level, depth, chosen = [list(range(128))], 0, []
    while level:
        below = []
        for part in level:
            best = sorted(part, key=lambda t: -scaled[t])
            peak = sum(scaled[t] for t in best[:count]) / min(count, len(part))
            if peak - sum(scaled[t] for t in part) / len(part) > 0.8 or depth == min(
                5, count.bit_length() - 1
            ):
                chosen += best[: count // 2**depth]
            else:
                below += [part[: len(part) // 2], part[len(part) // 2 :]]
        level, depth = below, depth + 1
    assert frames(aks(scores, (128, 1, 2), 2 * count)) == sorted(chosen)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (torch.ones(3), r"scores have shape \(3,\); pass \[4\]"),
        (torch.tensor([0.0, 1.0, torch.nan, 2.0]), "scores has 1 NaN"),
    ],
)
def test_exception(scores, message):
    with pytest.raises(ValueError, match=message):
        aks(scores, (4, 2, 2), 5)
