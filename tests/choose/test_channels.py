"""Channels: the context that groups share, each group by hand, and groups of one's own."""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError
from importlib import import_module

import pytest
import torch
from kornia.color import rgb_to_lab

from arr_coc import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose import channels as context
from arr_coc.choose import channels as saliency
from arr_coc.choose import motion
from arr_coc.choose.channels import (
    CHANNEL_GROUPS,
    COSTS,
    OPTIONAL_INPUTS,
    PRESETS,
    ChannelContext,
    ChannelGroup,
    register_channel_group,
)
from arr_coc.choose.filters import position_grid
from arr_coc.choose.texture import channel_groups, channel_names, generate_texture_array, texture_size
from each import each
from texture_inputs import needed

# ---- texture context -------------------------------------------------------------------------------------


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


# ---- texture groups --------------------------------------------------------------------------------------

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


# ---- texture registry ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _restore_registry():
    groups = dict(CHANNEL_GROUPS)
    yield
    CHANNEL_GROUPS.clear()
    CHANNEL_GROUPS.update(groups)


def blank(seed=0) -> torch.Tensor:
    return torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(seed))


def group(**fields) -> ChannelGroup:
    plain = {"name": "mine", "count": 1, "source": "", "cost": "free", "compute": lambda c: c.cell_luma}
    return ChannelGroup(**plain | fields)


class TestGroup:
    def test_channels_are_numbered_where_they_have_no_names(self):
        assert group(count=2).channels == ("mine.0", "mine.1")
        assert group(count=2, channels=["a", "b"]).channels == ("a", "b")

    @each("needs", [{"features"}, ["features"], ("features", "features"), "features"])
    def test_needs_are_a_set_of_names(self, needs):
        assert group(needs=needs).needs == {"features"}

    def test_no_needs_by_default(self):
        assert group().needs == frozenset()

    @each(
        ("fields", "message"),
        [
            ({"name": ""}, "needs a name"),
            ({"count": 0}, "'mine': count 0"),
            ({"channels": ("a", "b")}, r"'mine': count 1 does not fit its channels \('a', 'b'\)"),
            ({"count": 2, "channels": ("a", "a")}, "'mine': count 2 does not fit"),
            ({"cost": "huge"}, "'mine': cost 'huge' is not one of .*cheap"),
            ({"spread": ("other",)}, r"'mine': \['other'\] are not among its channels"),
            ({"salient": ("other",)}, r"'mine': \['other'\] are not among its channels"),
            ({"needs": {"depth"}}, r"'mine': needs \['depth'\] are not among .*features"),
            ({"needs": "depth"}, r"'mine': needs \['depth'\]"),
            ({"compute": lambda pixels, grid: pixels.luma}, "'mine': compute must be a function of one"),
            ({"compute": lambda: None}, "'mine': compute must be a function of one"),
            ({"compute": None}, "'mine': compute must be a function of one"),
        ],
    )
    def test_a_group_that_contradicts_itself(self, fields, message):
        with pytest.raises(ValueError, match=message):
            group(**fields)

    def test_what_can_be_called_with_a_context_computes(self):
        class Mean:
            def __call__(self, context: ChannelContext, scale: float = 1.0) -> torch.Tensor:
                return context.cell_luma * scale

        for compute in (Mean(), lambda *anything: anything[0].cell_luma):
            assert callable(group(compute=compute).compute)
        assert group(compute=torch.relu).count == 1  # compiled: its signature cannot be read

    def test_needs_are_fields_of_the_context(self):
        fields = {f.name: f.default for f in dataclasses.fields(ChannelContext)}
        assert {name for name, default in fields.items() if default is None} == set(OPTIONAL_INPUTS)


class TestRegister:
    def test_a_user_adds_a_group_by_one_call(self):
        register_channel_group(ChannelGroup("red", 1, "mine", "cheap", lambda c: c.colour[:, :1] * 9))
        array = generate_texture_array(blank(), (4, 4), ["position", "red"])
        assert array.shape == (1, 3, 4, 4)
        assert torch.equal(array[:, 2:], generate_texture_array(blank(), (4, 4))[:, :1].mul(9).clamp(max=1))
        assert channel_names(["position", "red"]) == ("y", "x", "red.0")
        assert texture_size(["position", "red"]) == 3

    def test_a_name_taken_by_a_different_group(self):
        register_channel_group(group())
        for other in (group(), group(count=2), group(name="rgb")):  # other functions, or another count
            with pytest.raises(
                ValueError, match=rf"{other.name}.*taken by a different group.*pop\('{other.name}"
            ):
                register_channel_group(other)

    def test_a_name_taken_by_a_preset(self):
        with pytest.raises(ValueError, match="'mvp13' is taken by a preset"):
            register_channel_group(group(name="mvp13"))

    def test_an_equal_group_again_changes_nothing(self):
        mine = group(needs=["features"])
        register_channel_group(mine)
        register_channel_group(dataclasses.replace(mine, needs={"features"}))
        assert CHANNEL_GROUPS["mine"] is not None
        assert list(CHANNEL_GROUPS).count("mine") == 1

    def test_a_group_is_replaced_as_the_message_says(self):
        register_channel_group(group())
        CHANNEL_GROUPS.pop("mine")
        register_channel_group(group(count=2))
        assert texture_size(["mine"]) == 2


class TestPreset:
    def test_channels_in_the_order_that_saved_allocators_have(self):
        assert channel_names("mvp13") == (
            "red", "green", "blue", "y", "x", "sobel_x", "sobel_y", "sobel",
            "spectral_residual", "centre_surround", "colour_opponency", "spread", "group_mean",
        )  # fmt: skip
        assert channel_names("fast13") == (
            "red", "green", "blue", "y", "x", "eccentricity.0", "edges", "no_edges", "high_pass", "low_pass",
            "motion.0", "centre_bias.0", "edge_distance.0",
        )  # fmt: skip

    def test_a_preset_is_its_groups(self):
        for name, names in PRESETS.items():
            assert channel_groups(name) == channel_groups(names) == channel_groups(list(names))

    @each(
        ("channels", "message"),
        [
            ("full41", "unknown texture preset 'full41'; use one of .*fast13"),
            ("rgb", "unknown texture preset 'rgb'.*list channel groups"),
            (["rgb", "nonsense"], r"\['nonsense'\]; registered are .*saliency"),
            ([], "an empty list"),
        ],
    )
    def test_unknown_channels(self, channels, message):
        with pytest.raises(ValueError, match=message):
            channel_groups(channels)

    def test_every_group_states_source_and_cost(self):
        for name, registered in CHANNEL_GROUPS.items():
            assert registered.name == name
            assert registered.source
            assert registered.cost in COSTS


WARMTH = '''
"""Warmth of each cell: how much more red than blue."""

from arr_coc import ChannelGroup, register_channel_group


def warmth(context):
    return (context.colour[:, :1] - context.colour[:, 2:]).relu()


register_channel_group(ChannelGroup("warmth", 1, "red less blue", "cheap", warmth, salient=("warmth.0",)))
'''

AGREEMENT = '''
"""Agreement of each cell with the mean feature of the image, where it was relevant before."""

from torch.nn.functional import cosine_similarity

from arr_coc import ChannelGroup, register_channel_group


def agreement(context):
    mean = context.features.mean((2, 3), keepdim=True)
    return (cosine_similarity(context.features, mean) * context.previous_relevance)[:, None]


register_channel_group(
    ChannelGroup(
        "agreement", 1, "cosine x relevance", "costly", agreement, needs={"features", "previous_relevance"}
    )
)
'''


class TestOneFile:
    """A channel group in a file of the user's, imported by its name."""

    @pytest.fixture
    def load(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(tmp_path))

        def load(name: str, code: str):
            (tmp_path / f"{name}.py").write_text(code)
            return import_module(name)

        return load

    def test_from_the_file_to_a_decision(self, load):
        with pytest.raises(ValueError, match="unknown channel groups"):
            ARRCOCConfig(dim=8, channels=("rgb", "warmth"))
        load("warmth_channels", WARMTH)
        config = ARRCOCConfig(dim=8, channels=("rgb", "position", "sobel", "warmth"))
        assert ARRCOCConfig.from_dict(config.to_dict()) == config
        page = torch.full((1, 3, 64, 64), 0.5)
        page[:, :, 16:32, 32:48] = torch.tensor([0.9, 0.5, 0.1]).view(3, 1, 1)
        texture = generate_texture_array(page, (4, 4), config.channels)
        assert texture.shape == (1, 9, 4, 4)
        expected = torch.zeros(4, 4)
        expected[1, 2] = 0.8
        assert torch.allclose(texture[0, -1], expected, atol=1e-6)
        layer = ARRCOCLayer(config)
        assert layer.perspectival(texture).argmax() == 1 * 4 + 2  # the warm cell stands out
        output = layer(torch.randn(1, 16, 8), torch.randn(1, 3, 8), page, (4, 4), budget=4)
        assert output.allocations[0].kept == 4

    def test_a_file_imported_twice_registers_once(self, load):
        assert load("warmth_again", WARMTH) is load("warmth_again", WARMTH)
        with pytest.raises(ValueError, match="'warmth' is taken by a different group"):
            load("warmth_copy", WARMTH)

    def test_a_file_whose_group_needs_more_than_pixels(self, load):
        load("agreement_channels", AGREEMENT)
        channels = ARRCOCConfig(dim=8, channels=("rgb", "agreement")).channels
        features, relevance = torch.ones(1, 6, 2, 2), torch.tensor([[[0.1, 0.2], [0.3, 0.4]]])
        with pytest.raises(ValueError, match="'agreement' needs previous_relevance"):
            generate_texture_array(blank(), (2, 2), channels, features=features)
        array = generate_texture_array(
            blank(), (2, 2), channels, features=features, previous_relevance=relevance
        )
        assert torch.allclose(array[:, 3], relevance)
