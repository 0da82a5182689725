"""The texture array: shapes, ranges, hand-worked channels, registry."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kornia.color import rgb_to_lab
from kornia.filters import laplacian, spatial_gradient

from arr_coc import texture
from arr_coc.texture import (
    CHANNEL_GROUPS,
    PRESETS,
    ChannelGroup,
    channel_names,
    generate_texture_array,
    register_channel_group,
    texture_size,
)


def image(height=64, width=64, seed=0) -> torch.Tensor:
    return torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(seed))


def channel(array: torch.Tensor, name: str, preset="mvp13") -> torch.Tensor:
    return array[:, channel_names(preset).index(name)]


class TestShape:
    @pytest.mark.parametrize("preset", PRESETS)
    @pytest.mark.parametrize("size", [(1, 1), (1, 300), (7, 3), (33, 65), (128, 96)])
    @pytest.mark.parametrize("grid", [(1, 1), (4, 4), (3, 7), (40, 2)])
    def test_any_image_on_any_grid(self, preset, size, grid):
        array = generate_texture_array(image(*size), grid, preset)
        assert array.shape == (1, 13, *grid)
        assert array.min() >= 0
        assert array.max() <= 1

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_dtype_kept_and_computed_in_float32(self, dtype):
        exact = generate_texture_array(image().to(dtype).float(), (4, 4))
        array = generate_texture_array(image().to(dtype), (4, 4))
        assert array.dtype == dtype
        assert torch.equal(array, exact.to(dtype))

    def test_presets_have_thirteen_named_channels(self):
        for preset in PRESETS:
            assert texture_size(preset) == 13 == len(set(channel_names(preset)))

    def test_no_gradient(self):
        assert not generate_texture_array(image().requires_grad_(), (2, 2)).requires_grad

    def test_deterministic(self):
        assert torch.equal(generate_texture_array(image(), (4, 4)), generate_texture_array(image(), (4, 4)))

    def test_batch_equals_single(self):
        a, b = image(seed=1), image(seed=2) * 0.2
        both = generate_texture_array(torch.cat((a, b)), (4, 4))
        assert torch.allclose(both[1:], generate_texture_array(b, (4, 4)), atol=1e-6)

    @pytest.mark.parametrize("preset", PRESETS)
    def test_no_value_is_read_back_from_an_accelerator(self, preset):
        picture = torch.empty(2, 3, 64, 48, device="meta")  # reading a value of it raises
        assert generate_texture_array(picture, (4, 3), preset).shape == (2, 13, 4, 3)

    def test_default_size_is_32x32(self):
        assert generate_texture_array(image(1024, 1024), (32, 32)).shape == (1, 13, 32, 32)


class TestException:
    @pytest.mark.parametrize(
        "bad",
        [
            torch.zeros(3, 8, 8),
            torch.zeros(1, 4, 8, 8),
            torch.zeros(1, 3, 0, 8),
            torch.zeros(1, 3, 8, 8, dtype=torch.uint8),
            torch.full((1, 3, 8, 8), 255.0),
            torch.full((1, 3, 8, 8), -1.0),
            torch.full((1, 3, 8, 8), float("nan")),
        ],
    )
    def test_image(self, bad):
        with pytest.raises(ValueError, match="image"):
            generate_texture_array(bad, (2, 2))

    @pytest.mark.parametrize("grid", [(0, 2), (2,), (1, 2, 2)])
    def test_grid(self, grid):
        with pytest.raises(ValueError, match="grid must be"):
            generate_texture_array(image(), grid)

    @pytest.mark.parametrize("channels", ["full41", ["rgb", "nonsense"], []])
    def test_channels(self, channels):
        with pytest.raises(ValueError, match=r"unknown (texture preset|channel groups)"):
            generate_texture_array(image(), (2, 2), channels)

    def test_rounding_outside_is_clamped(self):
        assert generate_texture_array(torch.full((1, 3, 8, 8), 1.004), (2, 2)).max() <= 1


class TestFilter:
    """Written for speed; kornia's and torch's own are the reference."""

    def test_sobel_and_laplacian(self):
        x = image(33, 20).mean(1, keepdim=True)
        dx, dy = texture.sobel(x)
        assert torch.allclose(torch.stack((dx, dy), 2) / 8, spatial_gradient(x, "sobel"), atol=1e-6)
        kornia = laplacian(x, 3, border_type="replicate")
        assert torch.allclose(texture.laplacian(x) / 16, kornia, atol=1e-6)

    def test_hue(self):
        x = image(16, 16)
        x[..., 0] = 0  # the dark end has a formula of its own
        assert torch.allclose(texture.lab_hue(x), rgb_to_lab(x)[:, 1:], atol=1e-3)  # of -128 to 127

    @pytest.mark.parametrize("grid", [(4, 8), (5, 3), (64, 64), (70, 1)])
    def test_cell_mean(self, grid):
        expected = F.adaptive_avg_pool2d(image(64, 64), grid)
        assert torch.allclose(texture.cell_mean(image(64, 64), grid), expected, atol=1e-6)


class TestFeature:
    def test_rgb_is_the_cell_mean(self):
        x = image(8, 8)
        array = generate_texture_array(x, (2, 2))
        assert torch.allclose(array[0, :3, 0, 1], x[0, :, :4, 4:].mean((1, 2)), atol=1e-6)

    def test_position_is_the_middle_of_the_cell(self):
        array = generate_texture_array(image(), (2, 4))
        assert channel(array, "y")[0, :, 0].tolist() == [0.25, 0.75]
        assert channel(array, "x")[0, 0].tolist() == [0.125, 0.375, 0.625, 0.875]

    def test_sobel_of_a_straight_edge(self):
        x = torch.zeros(1, 3, 8, 8)
        x[..., 4:] = 1  # one edge between columns 3 and 4: both have |d/dx| = 1
        array = generate_texture_array(x, (1, 4))
        assert torch.allclose(channel(array, "sobel_x")[0, 0], torch.tensor([0, 0.5, 0.5, 0]), atol=1e-5)
        assert torch.allclose(channel(array, "sobel")[0, 0], torch.tensor([0, 0.5, 0.5, 0]), atol=1e-5)
        assert channel(array, "sobel_y").max() < 1e-6

    def test_spread_is_twice_the_standard_deviation_and_zero_when_uniform(self):
        x = torch.full((1, 3, 8, 8), 0.7)
        x[..., ::2, 4:] = 0.5
        spread = channel(generate_texture_array(x, (1, 2)), "spread")[0, 0]
        assert spread[0] == 0
        assert spread[1] == pytest.approx(0.2, abs=1e-3)

    def test_group_mean_looks_at_3x3_cells(self):
        x = torch.zeros(1, 3, 20, 20)
        x[..., 8:12, 8:12] = 0.9
        mean = channel(generate_texture_array(x, (5, 5)), "group_mean")[0]
        assert torch.allclose(mean[1:4, 1:4], torch.full((3, 3), 0.1), atol=1e-5)
        assert mean[0].max() < 1e-6

    @pytest.mark.parametrize("name", ["spectral_residual", "centre_surround", "colour_opponency"])
    def test_saliency_is_dark_on_a_blank_page_and_finds_the_odd_spot(self, name):
        x = torch.full((1, 3, 256, 256), 0.8)
        assert channel(generate_texture_array(x, (8, 8)), name).max() < 0.02
        x[..., 64:96, 160:192] = torch.tensor([0.9, 0.1, 0.1]).view(3, 1, 1)
        found = channel(generate_texture_array(x, (8, 8)), name)[0]
        assert found.argmax() == 2 * 8 + 5
        assert found.max() > 0.3

    def test_the_three_saliency_maps_differ(self):
        """A red cell as bright as its ground is seen by colour alone; a text-like cell not by colour."""
        x = torch.full((1, 3, 256, 256), 0.5)
        x[..., 64:96, 160:192] = torch.tensor([0.87, 0.37, 0.2]).view(3, 1, 1)
        array = generate_texture_array(x, (8, 8))
        assert channel(array, "colour_opponency").max() > 0.5
        assert channel(array, "centre_surround").max() < 0.1
        maps = [channel(generate_texture_array(image(256, 256) ** 4, (8, 8)), n).flatten()
                for n in ("spectral_residual", "centre_surround", "colour_opponency")]  # fmt: skip
        assert torch.corrcoef(torch.stack(maps)).triu(1).abs().max() < 0.9

    def test_spectral_residual_ignores_brightness_of_the_whole(self):
        x = image(64, 64) * 0.5
        a, b = (channel(generate_texture_array(v, (4, 4)), "spectral_residual") for v in (x, x + 0.4))
        assert torch.allclose(a, b, atol=1e-3)

    def test_fast13(self):
        x = torch.zeros(1, 3, 64, 64)
        x[..., :32] = 1
        array = generate_texture_array(x, (4, 4), "fast13")
        by_name = {n: array[0, i] for i, n in enumerate(channel_names("fast13"))}
        assert torch.allclose(by_name["edges"] + by_name["no_edges"], torch.ones(4, 4))
        assert by_name["edges"][0].argmax() in (1, 2)
        assert by_name["motion.0"].max() == 0
        assert by_name["high_pass"][:, [0, 3]].max() < 1e-5 < by_name["high_pass"][:, [1, 2]].min()
        assert (by_name["low_pass"].diff(dim=1) < 0).all()
        assert by_name["eccentricity.0"][0, 0] == pytest.approx(0.75)
        assert (
            by_name["centre_bias.0"][1, 1] > by_name["centre_bias.0"][0, 1] > by_name["centre_bias.0"][0, 0]
        )

    def test_edge_distance_is_exact(self):
        x = torch.ones(1, 3, 60, 80)
        x[..., 2:8, 2:8] = 0  # edges in cell (0, 0) of a 6x8 grid only
        distance = channel(generate_texture_array(x, (6, 8), "fast13"), "edge_distance.0", "fast13")[0]
        y, xs = torch.meshgrid(torch.arange(6.0), torch.arange(8.0), indexing="ij")
        assert torch.allclose(distance, (y**2 + xs**2).sqrt() / 10, atol=1e-5)
        blank = generate_texture_array(torch.ones(1, 3, 60, 80), (6, 8), "fast13")
        assert (channel(blank, "edge_distance.0", "fast13") == 1).all()


class TestRegistry:
    @pytest.fixture(autouse=True)
    def _restore(self, monkeypatch):
        monkeypatch.setattr(texture, "CHANNEL_GROUPS", dict(CHANNEL_GROUPS))

    def test_a_user_adds_a_group(self):
        register_channel_group(ChannelGroup("red", 1, "mine", "cheap", lambda p, _: p.colour[:, :1] * 9))
        array = generate_texture_array(image(), (4, 4), ["position", "red"])
        assert array.shape == (1, 3, 4, 4)
        assert array.max() <= 1
        assert channel_names(["position", "red"]) == ("y", "x", "red.0")

    def test_a_taken_name(self):
        for name in ("rgb", "mvp13"):
            with pytest.raises(ValueError, match=f"{name}.*taken"):
                register_channel_group(ChannelGroup(name, 1, "", "free", lambda p, _: p.luma))
        register_channel_group(CHANNEL_GROUPS["rgb"])  # the same group again changes nothing

    def test_a_group_that_lies_about_its_shape(self):
        register_channel_group(ChannelGroup("two", 2, "", "free", lambda p, _: p.colour))
        with pytest.raises(ValueError, match="'two' returned"):
            generate_texture_array(image(), (4, 4), ["two"])

    @pytest.mark.parametrize(
        "wrong", [{"count": 0}, {"cost": "huge"}, {"channels": ("a", "b")}, {"spread": ("other",)}]
    )
    def test_a_group_that_contradicts_itself(self, wrong):
        fields = {
            "name": "mine",
            "count": 1,
            "source": "",
            "cost": "free",
            "compute": lambda p, _: p.luma,
        }
        with pytest.raises(ValueError, match="mine"):
            ChannelGroup(**fields | wrong)

    def test_every_group_states_source_and_cost(self):
        for name, group in CHANNEL_GROUPS.items():
            assert group.name == name
            assert group.source
            assert group.cost in ("free", "cheap", "costly")
