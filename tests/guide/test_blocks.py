"""Means and extremes of blocks are those of torch's pooling."""

import pytest
import torch
import torch.nn.functional as F

from arr_coc.guide.print_encoder import block_max, block_mean, window_mean


@pytest.fixture
def x():
    return torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [(2, 2), (4, 4), (16, 32), (8, 16), (16, 4), (1, 3)])
def test_blocks(x, size):
    mean = block_mean(x, size)
    assert mean.shape == (2, 3, 64 // size[0], 96 // size[1])
    assert torch.allclose(mean, F.avg_pool2d(x, size), atol=1e-6)
    assert torch.equal(block_max(x, size), F.max_pool2d(x, size))
    assert torch.equal(-block_max(-x, size), -F.max_pool2d(-x, size))


def test_blocks_of_a_picture_whose_channels_lie_together(x):
    last = x.contiguous(memory_format=torch.channels_last)
    assert torch.allclose(block_mean(last, (4, 4)), F.avg_pool2d(x, 4), atol=1e-6)
    assert torch.equal(block_max(last, (4, 4)), F.max_pool2d(x, 4))


@pytest.mark.parametrize("side", [1, 3, 9])
def test_windows(x, side):
    mean = window_mean(x, side)
    assert mean.shape == (2, 3, 65 - side, 97 - side)
    assert torch.allclose(mean, F.avg_pool2d(x, side, 1), atol=1e-6)


def test_a_side_that_is_no_multiple_is_refused(x):
    with pytest.raises(RuntimeError, match="unflatten"):
        block_mean(x, (7, 4))
