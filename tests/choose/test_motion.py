"""Motion of a whole picture: shifts to a part of a point, what they can't explain, maps moved along."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from arr_coc.choose.motion import covered, layer_shift, moved, phase_shift, point_shift
from arr_coc_lab.world import draw_page


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
