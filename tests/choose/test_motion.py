"""Motion of a whole picture, and the channels of time that follow it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from arr_coc.choose.motion import Motion, covered, layer_shift, moved, phase_shift, point_shift
from arr_coc.choose.texture import channel_names, generate_texture_array
from arr_coc_lab.world import draw_page

# ---- motion ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page() -> Tensor:
    image = draw_page(3, (400, 400), "test", void=False).image
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].float() / 255


def window(page: Tensor, y: int, x: int, shrink: int = 2) -> Tensor:
    """What a camera at (y, x) px sees, [1, 3, 128, 112], each of its points some px of the page."""
    view = page[..., y : y + 128 * shrink, x : x + 112 * shrink]
    return torch.nn.functional.avg_pool2d(view, shrink)


class TestShift:
    @pytest.mark.parametrize(("y", "x"), [(6, 0), (0, -10), (-13, 7), (21, 30), (-1, 1)])
    def test_of_a_panning_page_to_a_part_of_a_point(self, page: Tensor, y: int, x: int) -> None:
        shift = point_shift(window(page, 60, 60), window(page, 60 - y, 60 - x))
        assert torch.allclose(shift, torch.tensor([[y / 2, x / 2]]), atol=0.2)

    def test_in_shares_of_the_sides(self, page: Tensor) -> None:
        share = phase_shift(window(page, 60, 60), window(page, 44, 32))
        assert torch.allclose(share, torch.tensor([[8 / 128, 14 / 112]]), atol=0.2 / 112)

    def test_each_of_a_batch_by_itself(self, page: Tensor) -> None:
        before = torch.cat([window(page, 60, 60)] * 3)
        after = torch.cat([window(page, 52, 60), window(page, 60, 60), 1 - window(page, 60, 60)])
        shifts = point_shift(before, after)
        assert torch.allclose(shifts[0], torch.tensor([4.0, 0.0]), atol=0.05)
        assert (shifts[1:] == 0).all()

    def test_what_is_another_picture_has_not_moved(self, page: Tensor) -> None:
        other = draw_page(9, (112, 128), "test").image
        after = torch.from_numpy(np.asarray(other).copy()).permute(2, 0, 1)[None].float() / 255
        assert (point_shift(window(page, 60, 60), after) == 0).all()

    def test_a_thing_that_moves_within_a_picture_is_no_movement_of_it(self, page: Tensor) -> None:
        before, after = window(page, 60, 60), window(page, 60, 60)
        before[..., 10:26, 10:26], after[..., 30:46, 40:56] = 0.0, 0.0
        assert (point_shift(before, after) == 0).all()


class TestLayerShift:
    def test_of_what_moves_behind_a_strip_that_stands_still(self, page: Tensor) -> None:
        before, after = window(page, 60, 60), window(page, 48, 60)
        for view in (before, after):
            view[..., 80:, :] = 0.1
            view[..., 84:120:4, 8:100] = 0.9
        assert torch.allclose(layer_shift(before, after), torch.tensor([[6.0, 0.0]]), atol=0.1)
        assert (point_shift(before, after) == 0).all()  # which asks for the picture as a whole

    def test_each_of_a_batch_by_itself_and_nothing_where_nothing_or_all_is_other(self, page: Tensor) -> None:
        before = torch.cat([window(page, 60, 60)] * 3)
        after = torch.cat([window(page, 52, 60), window(page, 60, 60), 1 - window(page, 60, 60)])
        shifts = layer_shift(before, after)
        assert torch.allclose(shifts[0], torch.tensor([4.0, 0.0]), atol=0.05)
        assert (shifts[1:] == 0).all()

    def test_a_thing_that_moves_is_no_layer(self, page: Tensor) -> None:
        before, after = torch.full((1, 3, 128, 112), 0.9), torch.full((1, 3, 128, 112), 0.9)
        before[..., 10:26, 10:26], after[..., 16:32, 10:26] = 0.0, 0.0
        assert (layer_shift(before, after) == 0).all()

    def test_pictures_smaller_than_a_part(self) -> None:
        tiny = torch.rand(2, 3, 3, 5)
        assert layer_shift(tiny, tiny.flip(3)).shape == (2, 2)


class TestMoved:
    def test_the_rim(self) -> None:
        maps = torch.rand(1, 2, 4, 8, generator=torch.Generator().manual_seed(0))
        shift = torch.tensor([[0.25, 0.0]])
        assert moved(maps, shift)[..., 0, :].abs().max() < 1e-5
        assert torch.allclose(moved(maps, shift, "border")[..., 0, :], maps[..., 0, :], atol=1e-5)
        assert torch.allclose(moved(maps, shift, "border")[..., 1:, :], maps[..., :-1, :], atol=1e-5)

    def test_where_it_still_covers_the_frame(self) -> None:
        inside = covered((4, 5), torch.tensor([[1.0, 0.0], [0.0, -1.5]]))
        assert inside[0].sum(1).tolist() == [0, 5, 5, 5]
        assert inside[1].sum(0).tolist() == [4, 4, 4, 0, 0]


# ---- texture clip ----------------------------------------------------------------------------------------

TEMPORAL = ("relevance_memory", "frame_change", "attention_memory", "change_memory")
GRID = (16, 16)


@pytest.fixture(scope="module")
def large_page() -> torch.Tensor:
    """A drawn page, [3, 768, 768]."""
    import numpy as np

    picture = draw_page(3, (768, 768), "test", void=False).image
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255


def seen_of(large_page: torch.Tensor, y: int, x: int, side: int = 512) -> torch.Tensor:
    """What a camera at (y, x) px sees of the page, [1, 3, side, side]."""
    return large_page[None, :, y : y + side, x : x + side]


def temporal(x: torch.Tensor, **inputs) -> dict[str, torch.Tensor]:
    array = generate_texture_array(x, GRID, TEMPORAL, **inputs)
    return dict(zip(channel_names(TEMPORAL), array.unbind(1), strict=True))


class TestPhaseShift:
    @pytest.mark.parametrize(("y", "x"), [(0, 0), (3, 0), (0, -5), (12, 7), (-9, 20)])
    def test_of_a_rolled_picture(self, y, x):
        small = torch.rand(2, 1, 64, 80, generator=torch.Generator().manual_seed(0))
        shift = phase_shift(small, small.roll((y, x), (-2, -1)))
        expected = torch.tensor([y / 64, x / 80])
        assert torch.allclose(shift, expected.expand(2, 2), atol=0.2 / 64)

    def test_of_a_page_without_structure_and_of_one_px(self):
        assert (phase_shift(torch.ones(1, 1, 9, 9), torch.ones(1, 1, 9, 9)) == 0).all()
        assert (phase_shift(torch.rand(1, 1, 1, 1), torch.rand(1, 1, 1, 1)) == 0).all()

    def test_moved_by_whole_cells_is_a_shift_that_loses_what_leaves(self):
        maps = torch.rand(1, 1, 4, 8)
        down = moved(maps, torch.tensor([[0.25, 0.0]]))
        assert torch.allclose(down[..., 1:, :], maps[..., :-1, :], atol=1e-5)
        assert down[..., 0, :].abs().max() < 1e-5
        right = moved(maps, torch.tensor([[0.0, 0.5]]))
        assert torch.allclose(right[..., 4:], maps[..., :4], atol=1e-5)


class TestPan:
    @pytest.mark.parametrize(("y", "x"), [(0, 0), (64, 0), (0, 96), (40, -52), (-17, 9)])
    def test_relevance_of_the_frame_before_follows_a_panning_page(self, large_page, y, x):
        """Within 0.1 where the content was in the frame before, for a smooth map on cells of 32 px."""
        place = torch.arange(16.0)
        bumps = torch.exp(-((place[:, None] - 8) ** 2 + (place - 7) ** 2) / 8)
        before, now = seen_of(large_page, 128, 128), seen_of(large_page, 128 + y, 128 + x)
        by_name = temporal(now, previous_frames=before[:, None], previous_relevance=bumps[None])
        there = torch.exp(-((place[:, None] - 8 + y / 32) ** 2 + (place - 7 + x / 32) ** 2) / 8)
        for name in ("warped_relevance", "smoothed_relevance"):
            assert (by_name[name][0] - there)[1:-1, 1:-1].abs().max() < 0.1

    def test_the_difference_after_the_shift_is_less_than_motion(self, large_page):
        before, now = seen_of(large_page, 100, 128), seen_of(large_page, 164, 128)
        by_name = temporal(now, previous_frames=before[:, None])
        motion = generate_texture_array(now, GRID, ["motion"], previous_frames=before[:, None])[0, 0]
        inside = by_name["frame_difference"][0, :-3]
        assert inside.mean() < 0.3 * motion[:-3].mean()

    def test_smoothing_is_that_of_the_plan_along_a_pan(self, large_page):
        """0.7 of what was and 0.3 of the new map, each where its content is now."""
        frames = torch.stack([seen_of(large_page, 64 + 32 * i, 128)[0] for i in range(3)])[None]
        history = torch.rand(1, 3, *GRID, generator=torch.Generator().manual_seed(0))
        by_name = temporal(seen_of(large_page, 160, 128), previous_frames=frames, relevance_history=history)
        up = [torch.nn.functional.pad(history[0, i], (0, 0, 0, 3 - i))[3 - i :] for i in range(3)]
        expected = 0.7 * (0.7 * up[0] + 0.3 * up[1]) + 0.3 * up[2]
        assert (by_name["smoothed_relevance"][0] - expected)[:12].abs().max() < 0.1
        assert torch.allclose(by_name["warped_relevance"][0][:12], up[2][:12], atol=0.1)


class TestCut:
    def test_a_cut_resets_what_was(self):
        dark, light = torch.full((1, 3, 64, 64), 0.1), torch.full((1, 3, 64, 64), 0.5)
        frames = torch.stack((dark, dark), 1)
        ones = torch.ones(1, *GRID)
        by_name = temporal(light, previous_frames=frames, previous_relevance=ones)
        assert (by_name["scene_cut"] == 1).all()
        for name in ("warped_relevance", "smoothed_relevance", "age"):
            assert (by_name[name] == 0).all()
        same = temporal(dark, previous_frames=frames, previous_relevance=ones)
        assert (same["scene_cut"] == 0).all()
        assert torch.allclose(same["warped_relevance"], ones, atol=1e-5)

    @pytest.mark.parametrize(("difference", "cut"), [(0.29, 0.0), (0.31, 1.0)])
    def test_a_cut_is_a_mean_difference_above_three_tenths(self, difference, cut):
        now = torch.full((1, 3, 64, 64), difference)
        assert (temporal(now, previous_frames=torch.zeros(1, 1, 3, 64, 64))["scene_cut"] == cut).all()

    def test_smoothing_starts_again_after_a_cut_in_the_history(self):
        dark, light = torch.zeros(1, 3, 64, 64), torch.ones(1, 3, 64, 64)
        history = torch.stack((torch.ones(1, *GRID), torch.full((1, *GRID), 0.4)), 1)
        by_name = temporal(light, previous_frames=torch.stack((dark, light), 1), relevance_history=history)
        assert torch.allclose(by_name["smoothed_relevance"], torch.tensor(0.4), atol=1e-5)

    def test_each_image_of_a_batch_has_its_own_cut(self):
        now = torch.ones(2, 3, 32, 32)
        before = torch.stack((torch.zeros(3, 32, 32), torch.ones(3, 32, 32)))[:, None]
        assert temporal(now, previous_frames=before)["scene_cut"].mean((1, 2)).tolist() == [1, 0]


class TestChange:
    def test_distance_to_the_cell_that_changed(self, large_page):
        before = seen_of(large_page, 0, 0)
        now = before.clone()
        now[..., 160:192, 320:352] = 1 - now[..., 160:192, 320:352]  # cell (5, 10)
        distance = temporal(now, previous_frames=before[:, None])["change_distance"][0]
        y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
        assert torch.allclose(distance, ((y - 5) ** 2 + (x - 10) ** 2).sqrt() / (2 * 256) ** 0.5, atol=1e-5)

    def test_age_counts_frames_since_a_change(self, large_page):
        old = seen_of(large_page, 0, 0)
        new = old.clone()
        new[..., 160:192, 320:352] = 1 - new[..., 160:192, 320:352]
        frames = torch.stack((old, old, new), 1)
        age = temporal(new, previous_frames=frames)["age"][0]
        assert age[5, 10] == pytest.approx(1 / 5)  # one frame unchanged
        assert age[0, 0] == pytest.approx(3 / 7)  # all three
        assert age.unique().numel() == 2

    def test_only_the_latest_frames_are_read(self, large_page):
        frames = seen_of(large_page, 0, 0)[:, None].expand(-1, 20, -1, -1, -1)
        assert Motion.of(frames, seen_of(large_page, 0, 0), GRID).small.shape == (1, 9, 128, 128)
        assert temporal(seen_of(large_page, 0, 0), previous_frames=frames)["age"][0, 0, 0] == pytest.approx(
            8 / 12
        )


class TestHistory:
    def test_attention_is_a_running_mean_over_questions(self):
        maps = torch.rand(1, 3, *GRID)
        mean = temporal(torch.rand(1, 3, 32, 32), attention_history=maps)["attention_history"]
        assert torch.allclose(mean, 0.7 * (0.7 * maps[:, 0] + 0.3 * maps[:, 1]) + 0.3 * maps[:, 2])

    def test_a_history_without_a_latest_map_and_the_reverse(self, large_page):
        frames, maps = seen_of(large_page, 0, 0)[:, None], torch.rand(1, 1, *GRID)
        one = temporal(seen_of(large_page, 0, 0), previous_frames=frames, relevance_history=maps)
        other = temporal(seen_of(large_page, 0, 0), previous_frames=frames, previous_relevance=maps[:, 0])
        assert all(torch.equal(one[name], other[name]) for name in one)
