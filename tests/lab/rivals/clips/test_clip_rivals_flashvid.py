"""FlashVID's selection by hand and by a loop."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch

from arr_coc_lab.rivals.clips import flashvid
from arr_coc_lab.rivals.clips.flashvid import density_peaks, distant, segment_lengths, tree_peaks
from each import each


def at(*degrees: float) -> torch.Tensor:
    """Unit vectors in the plane."""
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack((angles.cos(), angles.sin()), -1).float()


def clip(
    steps: int = 12, cells: int = 10, width: int = 6, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cells that change slowly, in scenes of four frames."""
    g = torch.Generator().manual_seed(seed)
    scenes = torch.randn(-(-steps // 4), cells, width, generator=g)
    features = scenes.repeat_interleave(4, 0)[:steps] + 0.4 * torch.randn(steps, cells, width, generator=g)
    return features, torch.rand(steps, cells, generator=g)


class TestSegments:
    def test_a_segment_ends_where_cos_is_below_point_nine(self):
        # cos 25 degrees = .906, cos 26 = .899: cut after the frames at 10, 60, ... and not within 25 degrees.
        angles = [0, 10, 60, 85, 111, 111, 200, 200, 270, 275, 330, 40, 80, 81]
        cuts = [i for i in range(13) if math.cos(math.radians(angles[i + 1] - angles[i])) < 0.9]
        assert len(cuts) == 7
        lengths = segment_lengths(at(*angles))
        assert lengths == [2, 2, 2, 2, 2, 1, 1, 2]
        assert [sum(lengths[: i + 1]) - 1 for i in range(7)] == cuts

    def test_at_least_eight(self):
        # One cut, after the fourth; six more where the angle is largest: 20 to 15, not 14.
        steps = [15, 20, 3, 90, 17, 14, 18, 16, 19, 1, 2]
        angles = [float(sum(steps[:i])) for i in range(12)]
        assert segment_lengths(at(*angles)) == [1, 1, 2, 1, 2, 1, 1, 3]

    def test_a_static_clip_is_cut_early(self):
        assert segment_lengths(torch.ones(20, 3)) == [1] * 7 + [13]

    @each("steps", [1, 2, 7, 8])
    def test_a_short_clip_is_all_segments(self, steps):
        assert segment_lengths(torch.ones(steps, 3)) == [1] * steps


class TestDistant:
    def test_distance_times_attention(self):
        # Nearest neighbours of 0, 10, 90, 180 degrees: 1 - cos 10, 1 - cos 10, 1 - cos 80, 1 - cos 90.
        cells = at(0, 10, 90, 180)
        assert distant(cells, torch.ones(4), 1).tolist() == [3]
        # .826 * 1 against 1 * .5: the third is first. Then to it: 1, .826, 1 times the attention.
        assert distant(cells, torch.tensor([1.0, 1, 1, 0.5]), 1).tolist() == [2]
        assert distant(cells, torch.tensor([1.0, 1, 1, 0.5]), 2).tolist() == [2, 0]
        # Then the fourth: min(1, 2) * .5 = .5 against the second's min(1 - cos 80, 1 - cos 10) = .015.
        assert distant(cells, torch.tensor([1.0, 1, 1, 0.5]), 4).tolist() == [2, 0, 3, 1]

    def test_equal_cells_are_ties(self):
        cells = torch.full((20, 7), 0.3)
        assert distant(cells, torch.ones(20), 5).tolist() == [0, 1, 2, 3, 4]

    def test_none_and_one(self):
        assert distant(at(5), torch.ones(1), 1).tolist() == [0]
        assert distant(at(5, 6), torch.ones(2), 0).tolist() == []


class TestDensityPeaks:
    def test_by_hand(self):
        # On a line, D = 1: three cells around 1, two around 10.5, and one alone at 30.
        # k = 2, itself and the nearest: density exp(-(0 + nearest^2) / 2).
        cells = torch.tensor([[0.0], [1.0], [1.5], [10.0], [11.0], [30.0]])
        near = [1.0, 0.5, 0.5, 1.0, 1.0, 19.0]
        density = [math.exp(-(value**2) / 2) for value in near]
        # Denser than 0, 10 and 11 are 1 and 1.5, than 30 all; than 1 and 1.5 none: the largest distance.
        gap = [1.0, 30.0, 30.0, 8.5, 9.5, 19.0]
        score = [a * b for a, b in zip(density, gap, strict=True)]
        want = sorted(range(6), key=lambda i: -score[i])
        assert want == [1, 2, 4, 3, 0, 5]
        assert density_peaks(cells, 2).tolist() == want[:2]

    def test_equal_cells_are_ties(self):
        assert density_peaks(torch.full((40, 9), 0.3), 6).tolist() == [0, 1, 2, 3, 4, 5]


class TestTrees:
    def test_cells_join_the_frame_before(self):
        # Frame 1 repeats both of frame 0 in another order, frame 2 one of them and something new.
        features = torch.stack((at(0, 90), at(92, 1), at(180, 2)))
        keep = tree_peaks(features, torch.ones(3, 2, dtype=torch.bool), 3)
        assert keep.tolist() == [[True, True], [False, False], [True, False]]

    def test_too_few_roots_are_made_up_for_by_the_least_similar(self):
        # The cells of frame 1 are 5 and 20 degrees off: of three to keep the one that is farther stays.
        features = torch.stack((at(0, 90), at(5, 110)))
        keep = tree_peaks(features, torch.ones(2, 2, dtype=torch.bool), 3)
        assert keep.tolist() == [[True, True], [False, True]]

    def test_what_is_selected_takes_no_part(self):
        features = torch.stack((at(0, 90), at(0, 90)))
        free = torch.tensor([[False, True], [True, False]])
        assert tree_peaks(features, free, 2).tolist() == free.tolist()  # cos 0 to the only free one before
        free = torch.tensor([[True, False], [True, True]])
        assert tree_peaks(features, free, 2).tolist() == [[True, False], [False, True]]


def test_seven_of_ten_are_selected_in_each_frame():
    features, attention = clip(steps=4)
    keep = flashvid(features, attention, 4 * 5)
    for t in range(4):  # segments of one frame: ceil(.7 * 5) = 4 by distance, one peak of the others
        chosen = set(distant(features[t], attention[t], 4).tolist())
        kept = set(keep[t].nonzero().flatten().tolist())
        assert chosen < kept
        assert len(kept) == 5


def test_attention_moves_it():
    features, attention = clip()
    even = flashvid(features, None, 30)
    assert torch.equal(even, flashvid(features, torch.ones_like(attention), 30))
    assert not torch.equal(even, flashvid(features, attention, 30))


def by_hand(x: np.ndarray, attention: np.ndarray, budget: int) -> set[tuple[int, int]]:
    """The method in loops."""
    steps, cells, width = x.shape

    def cosine(a, b):
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    counts = [budget * (t + 1) // steps - budget * t // steps for t in range(steps)]
    kept: set[tuple[int, int]] = set()
    for t in range(steps):
        d = [[1 - cosine(x[t, i], x[t, j]) for j in range(cells)] for i in range(cells)]
        chosen: list[int] = []
        while len(chosen) < math.ceil(round(0.7 * counts[t], 6)):
            rest = [j for j in range(cells) if j not in chosen]

            def reach(j, d=d, t=t, chosen=chosen):
                return attention[t, j] * min(d[i][j] for i in chosen or range(cells) if i != j)

            chosen.append(max(rest, key=reach))
        kept |= {(t, n) for n in chosen}
    means = [frame.mean(0) for frame in x]
    likeness = [cosine(a, b) for a, b in pairwise(means)]
    cuts = [i for i, value in enumerate(likeness) if value < 0.9]
    others = sorted((i for i in range(steps - 1) if i not in cuts), key=likeness.__getitem__)
    cuts = sorted(cuts + others[: max(0, 7 - len(cuts))])
    bounds = [0, *(cut + 1 for cut in cuts), steps]
    for start, stop in pairwise(bounds):
        rest = sum(counts[start:stop]) - sum(start <= t < stop for t, _ in kept)
        free = [(t, n) for t in range(start, stop) for n in range(cells) if (t, n) not in kept]
        joins = {}
        for t, n in free:
            before = [place for place in free if place[0] == t - 1]
            if before:
                best = max(before, key=lambda place: cosine(x[t, n], x[place]))
                if cosine(x[t, n], x[best]) > 0.8:
                    joins[t, n] = best
        order = sorted(joins, key=lambda place: -cosine(x[place], x[joins[place]]))
        joins = {place: joins[place] for place in order[: len(free) - rest]}
        trees = {place: [place] for place in free if place not in joins}
        for place in joins:
            root = place
            while root in joins:
                root = joins[root]
            trees[root].append(place)
        average = {root: np.mean([x[place] for place in places], 0) for root, places in trees.items()}
        sizes = [sum(t == at for t, _ in trees) for at in range(start, stop)]
        shares = [rest * size / sum(sizes) for size in sizes]
        take = [math.floor(share + 1e-9) for share in shares]
        for i in sorted(range(len(take)), key=lambda i: round(take[i] - shares[i], 9))[: rest - sum(take)]:
            take[i] += 1
        for t, count in zip(range(start, stop), take, strict=True):
            roots = sorted(place for place in trees if place[0] == t)
            if not count:
                continue
            far = {
                (a, b): float(np.linalg.norm(average[a] - average[b])) / math.sqrt(width)
                for a in roots
                for b in roots
            }
            density = {}
            for a in roots:
                near = sorted(far[a, b] for b in roots)[: min(count, 7)]
                density[a] = math.exp(-sum(value**2 for value in near) / len(near))
            score = {}
            for a in roots:
                denser = [far[a, b] for b in roots if density[b] > density[a]]
                score[a] = density[a] * min(denser, default=max(far.values()))
            kept |= set(sorted(roots, key=lambda a: -score[a])[:count])
    return kept


@each("budget", [7, 24, 36, 55, 90, 119])
@each("steps", [12, 30])
def test_against_the_loop(budget, steps):
    features, attention = clip(steps=steps, seed=budget)
    keep = flashvid(features, attention, budget)
    want = by_hand(features.double().numpy(), attention.double().numpy(), budget)
    assert set(map(tuple, keep.nonzero().tolist())) == want


def test_a_static_clip_keeps_no_cell_twice_beside_its_selection():
    """In a segment all that is not selected joins its first frame, so far as the budget lets it."""
    frame = torch.randn(20, 30, generator=torch.Generator().manual_seed(0))
    features = frame.expand(16, 20, 30)  # segments 1 x 7, and one of 9 frames
    keep = flashvid(features, None, 16 * 6)
    assert keep[7:].sum(1).tolist() == [5 + 9, *[5] * 8]
