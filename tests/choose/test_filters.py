"""Filters of the texture array; torch's and kornia's own are the reference of those written for speed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kornia.filters import gaussian_blur2d, laplacian, spatial_gradient

from arr_coc.choose import filters


def luma(height=33, width=20) -> torch.Tensor:
    return torch.rand(2, 1, height, width, generator=torch.Generator().manual_seed(0))


def test_sobel_is_eight_times_kornias():
    dx, dy = filters.sobel(luma())
    assert torch.allclose(torch.stack((dx, dy), 2) / 8, spatial_gradient(luma(), "sobel"), atol=1e-6)


def test_sobel_of_a_straight_edge_and_of_one_pixel():
    x = torch.tensor([0.0, 0, 1, 1]).expand(1, 1, 3, 4)
    dx, dy = filters.sobel(x)
    assert torch.equal(dx[0, 0], torch.tensor([0.0, 4, 4, 0]).expand(3, 4))
    assert torch.equal(dy, torch.zeros(1, 1, 3, 4))
    assert all(torch.equal(d, torch.zeros(1, 1, 1, 1)) for d in filters.sobel(torch.ones(1, 1, 1, 1)))


def test_laplacian_is_sixteen_times_kornias():
    reference = laplacian(luma(), 3, border_type="replicate")
    assert torch.allclose(filters.laplacian(luma()) / 16, reference, atol=1e-6)


def test_laplacian_of_a_dot():
    x = torch.zeros(1, 1, 5, 5)
    x[..., 2, 2] = 1
    expected = F.pad(torch.ones(1, 1, 3, 3), (1, 1, 1, 1))
    expected[..., 2, 2] = -8
    assert torch.equal(filters.laplacian(x), expected)


@pytest.mark.parametrize("grid", [(4, 8), (5, 3), (64, 64), (70, 1)])
def test_cell_mean_is_adaptive_pooling(grid):
    x = luma(64, 64)
    assert torch.allclose(filters.cell_mean(x, grid), F.adaptive_avg_pool2d(x, grid), atol=1e-6)


def test_surround_is_a_blur_over_three_deviations_each_way():
    x = luma(9, 9)
    reference = gaussian_blur2d(x, (7, 7), (1.0, 1.0), border_type="replicate")
    assert torch.equal(filters.surround(x, 1.0), reference)
    assert torch.allclose(filters.surround(torch.full((1, 2, 1, 3), 0.4), 3.0), torch.tensor(0.4))


def test_filters_leave_their_input_as_it_is():
    x = luma()
    filters.sobel(x), filters.laplacian(x), filters.cell_mean(x, (3, 3)), filters.surround(x, 1.0)
    assert torch.equal(x, luma())
