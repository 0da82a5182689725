"""The built-in channel groups, one by one, on images worked by hand."""

from __future__ import annotations

import pytest
import torch
from kornia.color import rgb_to_lab

from arr_coc.choose import channels as saliency
from arr_coc.choose.channels import CHANNEL_GROUPS, PRESETS, ChannelContext
from arr_coc.choose.texture import channel_groups, channel_names, generate_texture_array
from each import each
from texture_inputs import needed

GROUPS = sorted(CHANNEL_GROUPS)


def image(height=64, width=64, seed=0) -> torch.Tensor:
    return torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(seed))


def channels(x: torch.Tensor, grid: tuple[int, int], *names: str, **optional) -> dict[str, torch.Tensor]:
    """Each channel of the named groups [B, H, W] by its name."""
    array = generate_texture_array(x, grid, names, **needed(names, len(x)), **optional)
    return {name: array[:, i] for i, name in enumerate(channel_names(names))}


class TestGroups:
    def test_every_group_of_a_preset_is_registered_and_every_group_is_in_a_preset(self):
        assert {name for names in PRESETS.values() for name in names} == set(GROUPS)

    @each("name", GROUPS)
    @each("size", [(1, 1), (50, 30)])
    def test_a_group_alone_has_its_shape_and_is_in_the_unit_range_unclamped(self, name, size):
        context = ChannelContext(image(*size).expand(2, -1, -1, -1), (3, 5), **needed([name], 2))
        part = channel_groups([name])[0].compute(context)
        assert part.shape == (2, CHANNEL_GROUPS[name].count, 3, 5)
        assert part.dtype == torch.float32
        assert part.isfinite().all()
        assert part.min() >= 0
        if name != "saliency":  # whose contrasts are scaled to fill the range, and may leave it
            assert part.max() <= 1

    @each("name", GROUPS)
    def test_spread_channels_are_zero_on_a_uniform_page(self, name):
        for channel, value in channels(torch.full((1, 3, 64, 64), 0.7), (4, 4), name).items():
            if channel in CHANNEL_GROUPS[name].spread:
                assert value.max() < 1e-5

    @each("name", GROUPS)
    def test_a_mirrored_image_has_mirrored_channels(self, name):
        straight = channels(image(), (4, 4), name)
        for channel, mirrored in channels(image().flip(-1), (4, 4), name).items():
            expected = straight[channel] if channel == "x" else straight[channel].flip(-1)
            assert torch.allclose(mirrored, expected, atol=1e-4)

    @each("name", [n for n in GROUPS if "previous_frames" not in CHANNEL_GROUPS[n].reads])
    def test_a_group_that_reads_no_frames_is_not_moved_by_frames_before(self, name):
        still = channels(image(), (4, 4), name)
        for channel, value in channels(image(), (4, 4), name, previous_frames=image(seed=1)[:, None]).items():
            assert torch.equal(value, still[channel])


class TestRgb:
    def test_the_mean_of_the_cell(self):
        x = image(8, 8)
        array = generate_texture_array(x, (2, 2), ["rgb"])
        assert torch.allclose(array[0, :, 0, 1], x[0, :, :4, 4:].mean((1, 2)), atol=1e-6)


class TestPosition:
    def test_the_middle_of_the_cell(self):
        by_name = channels(image(), (2, 4), "position")
        assert by_name["y"][0, :, 0].tolist() == [0.25, 0.75]
        assert by_name["x"][0, 0].tolist() == [0.125, 0.375, 0.625, 0.875]


class TestEccentricity:
    def test_by_hand_and_at_most_one(self):
        distance = channels(image(), (4, 4), "eccentricity")["eccentricity.0"][0]
        assert distance[0, 0] == pytest.approx(0.75)  # (3/8, 3/8) from the middle, of (1/2, 1/2)
        assert distance[0, 1] == pytest.approx((0.375**2 + 0.125**2) ** 0.5 * 2**0.5)
        assert 0.9 < channels(image(), (64, 64), "eccentricity")["eccentricity.0"].max() < 1


class TestCentreBias:
    def test_one_in_the_middle_and_falling_outwards(self):
        bias = channels(image(), (5, 5), "centre_bias")["centre_bias.0"][0]
        assert bias[2, 2] == 1
        assert bias[0, 0] == pytest.approx(torch.exp(torch.tensor(-4 * 0.8**2)).item())
        assert bias[2, 2] > bias[1, 2] > bias[1, 1] > bias[0, 1] > bias[0, 0]


class TestSobel:
    def test_a_straight_edge(self):
        x = torch.zeros(1, 3, 8, 8)
        x[..., 4:] = 1  # one edge between columns 3 and 4: both have |d/dx| = 1
        by_name = channels(x, (1, 4), "sobel")
        assert torch.allclose(by_name["sobel_x"][0, 0], torch.tensor([0, 0.5, 0.5, 0]), atol=1e-5)
        assert torch.allclose(by_name["sobel"][0, 0], torch.tensor([0, 0.5, 0.5, 0]), atol=1e-5)
        assert by_name["sobel_y"].max() < 1e-6

    def test_a_transposed_image_exchanges_x_and_y(self):
        straight = channels(image(), (4, 8), "sobel")
        turned = channels(image().mT, (8, 4), "sobel")
        assert torch.allclose(turned["sobel_x"], straight["sobel_y"].mT, atol=1e-6)
        assert torch.allclose(turned["sobel"], straight["sobel"].mT, atol=1e-6)


class TestEdgePair:
    def test_edges_are_the_sobel_length_and_add_up_to_one(self):
        by_name = channels(image(), (4, 4), "edge_pair", "sobel")
        assert torch.equal(by_name["edges"], by_name["sobel"])
        assert torch.allclose(by_name["edges"] + by_name["no_edges"], torch.ones(1, 4, 4))
        assert by_name["edges"].min() > 0.05


class TestEdgeDistance:
    def test_it_is_exact(self):
        x = torch.ones(1, 3, 60, 80)
        x[..., 2:8, 2:8] = 0  # edges in cell (0, 0) of a 6x8 grid only
        distance = channels(x, (6, 8), "edge_distance")["edge_distance.0"][0]
        y, columns = torch.meshgrid(torch.arange(6.0), torch.arange(8.0), indexing="ij")
        assert torch.allclose(distance, (y**2 + columns**2).sqrt() / 10, atol=1e-5)

    def test_the_nearest_of_several_edges(self):
        x = torch.ones(1, 3, 60, 80)
        for row, column in ((0, 0), (4, 6), (5, 1)):
            x[..., 10 * row + 2 : 10 * row + 8, 10 * column + 2 : 10 * column + 8] = 0
        distance = channels(x, (6, 8), "edge_distance")["edge_distance.0"][0] * 10
        for row, column in ((3, 3), (1, 7), (2, 0), (5, 5)):
            nearest = min((row - r) ** 2 + (column - c) ** 2 for r, c in ((0, 0), (4, 6), (5, 1)))
            assert distance[row, column] == pytest.approx(nearest**0.5, abs=1e-4)

    def test_one_everywhere_on_a_page_without_edges(self):
        assert (channels(torch.ones(1, 3, 60, 80), (6, 8), "edge_distance")["edge_distance.0"] == 1).all()


class TestPasses:
    def test_a_step_between_cells(self):
        x = torch.zeros(1, 3, 64, 64)
        x[..., :32] = 1
        by_name = channels(x, (4, 4), "passes")
        high, low = by_name["high_pass"][0], by_name["low_pass"][0]
        assert high[:, [0, 3]].max() < 1e-5
        # One of a cell's 16 columns lies at the step, with |Laplacian| 3 of at most 8.
        assert torch.allclose(high[:, [1, 2]], torch.tensor(3 / 8 / 16), atol=1e-5)
        assert (low.diff(dim=1) < 0).all()

    def test_low_pass_of_a_uniform_page_is_its_brightness(self):
        assert torch.allclose(
            channels(torch.full((1, 3, 32, 32), 0.3), (4, 4), "passes")["low_pass"], torch.tensor(0.3)
        )


class TestGrouping:
    def test_spread_is_twice_the_standard_deviation_and_zero_when_uniform(self):
        x = torch.full((1, 3, 8, 8), 0.7)
        x[..., ::2, 4:] = 0.5
        spread = channels(x, (1, 2), "grouping")["spread"][0, 0]
        assert spread[0] == 0
        assert spread[1] == pytest.approx(0.2, abs=1e-3)

    def test_group_mean_looks_at_3x3_cells(self):
        x = torch.zeros(1, 3, 20, 20)
        x[..., 8:12, 8:12] = 0.9
        mean = channels(x, (5, 5), "grouping")["group_mean"][0]
        assert torch.allclose(mean[1:4, 1:4], torch.full((3, 3), 0.1), atol=1e-5)
        assert mean[0].max() < 1e-6


class TestMotion:
    def test_zero_for_a_still(self):
        assert channels(image(), (4, 4), "motion")["motion.0"].max() == 0

    def test_change_of_brightness_since_the_latest_frame(self):
        before, now = torch.full((1, 3, 16, 16), 0.5), torch.full((1, 3, 16, 16), 0.5)
        now[..., :4, 8:] = 0.9  # half of cell (0, 1) is brighter by 0.4
        now[..., 8:, :8] = 0.3  # all of cell (1, 0) is darker by 0.2
        frames = torch.stack((torch.zeros_like(before), before), dim=1)
        motion = channels(now, (2, 2), "motion", previous_frames=frames)["motion.0"][0]
        assert torch.allclose(motion, torch.tensor([[0, 0.2], [0.2, 0]]), atol=1e-6)

    def test_each_image_of_a_batch_has_its_own_frames(self):
        x = image().expand(2, -1, -1, -1)
        frames = torch.stack((image(), image(seed=1)))
        motion = channels(x, (4, 4), "motion", previous_frames=frames)["motion.0"]
        assert motion[0].max() == 0
        assert motion[1].min() > 0.1


class TestSaliency:
    @each("name", saliency.SALIENCY_NAMES)
    def test_dark_on_a_blank_page_and_brightest_at_the_odd_spot(self, name):
        x = torch.full((1, 3, 256, 256), 0.8)
        assert channels(x, (8, 8), "saliency")[name].max() < 0.02
        x[..., 64:96, 160:192] = torch.tensor([0.9, 0.1, 0.1]).view(3, 1, 1)
        salient = channels(x, (8, 8), "saliency")[name][0]
        assert salient.argmax() == 2 * 8 + 5
        assert salient.max() > 0.3

    def test_the_three_maps_differ(self):
        """A red cell as bright as its ground stands out by colour alone; a text-like cell not by colour."""
        x = torch.full((1, 3, 256, 256), 0.5)
        x[..., 64:96, 160:192] = torch.tensor([0.87, 0.37, 0.2]).view(3, 1, 1)
        by_name = channels(x, (8, 8), "saliency")
        assert by_name["colour_opponency"].max() > 0.5
        assert by_name["centre_surround"].max() < 0.1
        maps = [m.flatten() for m in channels(image(256, 256) ** 4, (8, 8), "saliency").values()]
        assert torch.corrcoef(torch.stack(maps)).triu(1).abs().max() < 0.9

    def test_spectral_residual_ignores_brightness_of_the_whole(self):
        x = image(64, 64) * 0.5
        a, b = (channels(v, (4, 4), "saliency")["spectral_residual"] for v in (x, x + 0.4))
        assert torch.allclose(a, b, atol=1e-3)

    def test_centre_surround_of_one_bright_cell(self):
        luma = torch.zeros(1, 1, 41, 41)
        luma[..., 20, 20] = 1
        weight = torch.exp(-(torch.arange(-9.0, 10) ** 2) / 18)  # of a Gaussian of 3 cells, 9 each way
        own = (1 / weight.sum()) ** 2  # its share of its own surroundings
        contrast = saliency.centre_surround(luma)[0, 0]
        assert contrast[20, 20] == pytest.approx(2 * (1 - own).item(), abs=1e-4)
        assert contrast[20, 23] == pytest.approx(2 * (own * weight[12]).item(), abs=1e-4)

    def test_hue_is_that_of_kornia(self):
        x = image(16, 16)
        x[..., 0] = 0  # the dark end has a formula of its own
        assert torch.allclose(saliency.lab_hue(x), rgb_to_lab(x)[:, 1:], atol=1e-3)  # of -128 to 127
