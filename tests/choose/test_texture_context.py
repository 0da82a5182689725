"""`ChannelContext`: frozen, its maps by hand, each computed when first read and once."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
import torch

from arr_coc.choose import channels as context
from arr_coc.choose import motion
from arr_coc.choose.channels import CHANNEL_GROUPS, ChannelContext
from arr_coc.choose.filters import position_grid
from arr_coc.choose.texture import generate_texture_array
from texture_inputs import needed


def pixels(height=16, width=24) -> ChannelContext:
    x = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    return ChannelContext(x, (2, 3))


def test_it_is_frozen():
    with pytest.raises(FrozenInstanceError):
        pixels().image = torch.zeros(1, 3, 4, 4)


def test_a_still_has_no_optional_inputs():
    still = pixels()
    assert still.features is still.previous_frames is still.previous_relevance is still.previous_luma is None


def test_shapes_of_shared_maps():
    x = ChannelContext(torch.rand(2, 3, 160, 24), (4, 6), previous_frames=torch.rand(2, 5, 3, 160, 24))
    assert x.luma.shape == x.previous_luma.shape == (2, 1, 160, 24)
    assert x.edges.shape == (2, 3, 4, 6)
    assert x.coarse.shape == (2, 3, 32, 24)  # 8 px per cell at most
    assert x.coarse_luma.shape == (2, 1, 32, 24)
    assert x.colour.shape == (2, 3, 4, 6)
    assert x.cell_luma.shape == (2, 1, 4, 6)
    assert x.position.shape == (2, 2, 4, 6)
    assert x.eccentricity.shape == (2, 1, 4, 6)
    assert x.per_cell(torch.rand(2, 7, 50, 50)).shape == (2, 7, 4, 6)


def test_luma_weighs_red_green_and_blue():
    primaries = torch.eye(3).view(1, 3, 1, 3)  # red, green and blue side by side
    x = ChannelContext(primaries, (1, 3))
    for luma in (x.luma, x.coarse_luma, x.cell_luma):
        assert torch.allclose(luma[0, 0, 0], torch.tensor([0.299, 0.587, 0.114]), atol=1e-4)


def test_previous_luma_is_of_the_latest_frame():
    frames = torch.zeros(1, 3, 3, 4, 4)
    frames[:, -1] = 0.6
    x = ChannelContext(torch.ones(1, 3, 4, 4), (2, 2), previous_frames=frames)
    assert torch.allclose(x.previous_luma, torch.tensor(0.6))


def test_edges_of_a_slope():
    ramp = torch.linspace(0, 1, 9).expand(1, 3, 9, 9)  # rises by 1/8 per pixel: 4 d/dx = 1, of 4
    edges = ChannelContext(ramp, (3, 3)).edges
    assert torch.allclose(edges[0, :, 1, 1], torch.tensor([0.25, 0, 0.25]), atol=1e-6)


def test_colour_is_the_mean_of_the_cell():
    x = pixels()
    assert torch.allclose(x.colour[:, :, 1, 2], x.image[:, :, 8:, 16:].mean((2, 3)), atol=1e-6)


def test_position_grid_is_made_once_per_grid_and_device():
    grid = position_grid((2, 4), torch.device("cpu"))
    assert grid[0, :, 0].tolist() == [0.25, 0.75]
    assert grid[1, 0].tolist() == [0.125, 0.375, 0.625, 0.875]
    assert position_grid((2, 4), torch.device("cpu")) is grid
    assert position_grid((4, 2), torch.device("cpu")).shape == (2, 4, 2)


def test_eccentricity_by_hand():
    distance = ChannelContext(torch.zeros(1, 3, 4, 4), (2, 3)).eccentricity[0, 0]
    assert distance[0, 1] == pytest.approx(0.25 * 2**0.5)  # straight above the middle
    assert distance[1, 2] == pytest.approx((0.25**2 + (1 / 3) ** 2) ** 0.5 * 2**0.5)


def test_shared_maps_are_computed_once_for_all_groups(monkeypatch):
    calls = {"sobel": [], "rgb_to_grayscale": []}
    for name, inputs in calls.items():
        original = getattr(context, name)

        def counted(x, original=original, inputs=inputs):
            inputs.append(tuple(x.shape))
            return original(x)

        monkeypatch.setattr(context, name, counted)
    everything = tuple(CHANNEL_GROUPS)
    generate_texture_array(torch.rand(1, 3, 96, 64), (4, 4), everything, **needed(everything))
    assert calls["sobel"] == [(1, 1, 96, 64)]
    # Brightness once of the pixels, once of the coarse image and once of the cells.
    assert sorted(calls["rgb_to_grayscale"]) == [(1, 3, 4, 4), (1, 3, 32, 32), (1, 3, 96, 64)]


def test_small_frames_and_their_shifts_are_computed_once_for_all_groups(monkeypatch):
    shifts = []
    original = motion.phase_shift
    monkeypatch.setattr(motion, "phase_shift", lambda *pair: shifts.append(1) or original(*pair))
    channels = ("motion", "relevance_memory", "frame_change", "change_memory")
    x = torch.rand(1, 3, 96, 64)
    generate_texture_array(x, (4, 4), channels, previous_frames=x[:, None])
    assert len(shifts) == 1


def test_a_map_that_no_group_reads_is_not_computed(monkeypatch):
    monkeypatch.setattr(context, "sobel", lambda x: pytest.fail("no listed group reads edges"))
    assert generate_texture_array(torch.rand(1, 3, 8, 8), (2, 2), ["rgb", "position"]).shape == (1, 5, 2, 2)
