"""Nulls for clips: whole frames, fewer pixels, chance."""

from __future__ import annotations

import pytest
import torch

from arr_coc_lab.rivals.clips import (
    CoarseFrames,
    fewer_pixels,
    random_cells,
    random_per_frame,
    uniform_frames,
)


class TestUniformFrames:
    def test_whole_frames_in_the_middle_of_equal_parts(self):
        keep = uniform_frames((8, 2, 2), 16)
        assert keep.all(1).nonzero().flatten().tolist() == [1, 3, 5, 7]
        assert keep.any(1).sum() == 4

    def test_what_is_over_goes_where_there_is_none(self):
        # 2 of 9 frames are 2 and 6; farthest from both are 0, 4 and 8, at 2: the earliest.
        keep = uniform_frames((9, 2, 2), 10)
        assert keep.all(1).nonzero().flatten().tolist() == [2, 6]
        assert int(keep[0].sum()) == 2
        assert int(keep.sum()) == 10

    def test_less_than_a_frame_is_an_even_part_of_the_middle_one(self):
        keep = uniform_frames((5, 1, 8), 4)
        assert keep.nonzero().tolist() == [[2, 1], [2, 3], [2, 5], [2, 7]]


class TestFewerPixels:
    def test_every_frame_at_half_its_size(self):
        frames = fewer_pixels((10, 16, 16), 640)
        assert frames.sizes == ((8, 8),) * 10
        assert frames.tokens == 640

    def test_what_is_over_buys_the_next_size_for_some(self):
        # 10 more than 4 frames of 4x4: the next size of the shape is 5x5, 9 more; one frame gets it.
        frames = fewer_pixels((4, 20, 20), 74)
        assert sorted(frames.sizes) == [(4, 4), (4, 4), (4, 4), (5, 5)]
        assert frames.tokens == 73

    def test_less_than_a_token_for_each(self):
        frames = fewer_pixels((8, 4, 4), 4)
        assert frames.sizes == ((0, 0), (1, 1)) * 4

    def test_all_of_it(self):
        assert fewer_pixels((3, 4, 6), 999).sizes == ((4, 6),) * 3

    def test_little_stays_unspent(self):
        for share in (0.25, 0.1, 0.05):
            for grid in ((16, 12, 20), (32, 16, 16), (7, 9, 30)):
                total = grid[0] * grid[1] * grid[2]
                budget = round(share * total)
                frames = fewer_pixels(grid, budget)
                sizes = [h * w for h, w in frames.sizes]
                assert 0 <= budget - frames.tokens < max(max(sizes) - min(sizes), grid[0])


class TestCoarseFrames:
    frames = CoarseFrames((4, 8, 16), ((4, 8), (8, 16), (0, 0), (2, 8)))

    def test_what_is_there_is_covered(self):
        assert self.frames.tokens == 32 + 128 + 16
        assert [self.frames.covered(t) for t in range(4)] == [True, True, False, True]
        assert [self.frames.scale(t) for t in range(4)] == [0.5, 1.0, 0.0, 0.25]

    def test_print_is_readable_at_twelve_px(self):
        assert [self.frames.readable(t, 24.0) for t in range(4)] == [True, True, False, False]
        assert [self.frames.readable(t, 23.9) for t in range(4)] == [False, True, False, False]
        assert self.frames.readable(3, 48.0)

    def test_what_is_not_shrunk_is_as_readable_as_it_is(self):
        assert self.frames.readable(1, 7.0)

    @pytest.mark.parametrize(
        ("sizes", "message"),
        [
            (((1, 1),), "1 sizes for 2 frames"),
            (((1, 1), (3, 1)), "a frame of 2x2 cells can't be encoded as 3x1"),
            (((1, 1), (0, 1)), "a frame of 2x2 cells can't be encoded as 0x1"),
        ],
    )
    def test_exception(self, sizes, message):
        with pytest.raises(ValueError, match=message):
            CoarseFrames((2, 2, 2), sizes)


class TestChance:
    def test_as_many_of_each_frame(self):
        keep = random_per_frame((6, 4, 4), 27, torch.Generator().manual_seed(0))
        assert sorted(keep.sum(1).tolist()) == [4, 4, 4, 5, 5, 5]

    def test_every_cell_is_as_likely(self):
        g = torch.Generator().manual_seed(0)
        for rule in (random_cells, random_per_frame):
            mean = torch.stack([rule((3, 2, 2), 6, g).float() for _ in range(2000)]).mean(0)
            assert mean.flatten().tolist() == pytest.approx([0.5] * 12, abs=0.05)

    def test_cells_of_the_clip_are_not_as_many_of_each_frame(self):
        g = torch.Generator().manual_seed(0)
        counts = {tuple(random_cells((3, 2, 2), 6, g).sum(1).tolist()) for _ in range(50)}
        assert len(counts) > 3
