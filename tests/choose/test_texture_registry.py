"""The registry of channel groups, and adding a group in one file."""

from __future__ import annotations

import dataclasses
from importlib import import_module

import pytest
import torch

from arr_coc import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.channels import (
    CHANNEL_GROUPS,
    COSTS,
    OPTIONAL_INPUTS,
    PRESETS,
    ChannelContext,
    ChannelGroup,
    register_channel_group,
)
from arr_coc.choose.texture import channel_groups, channel_names, generate_texture_array, texture_size
from each import each


@pytest.fixture(autouse=True)
def _restore_registry():
    groups = dict(CHANNEL_GROUPS)
    yield
    CHANNEL_GROUPS.clear()
    CHANNEL_GROUPS.update(groups)


def image(seed=0) -> torch.Tensor:
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
        array = generate_texture_array(image(), (4, 4), ["position", "red"])
        assert array.shape == (1, 3, 4, 4)
        assert torch.equal(array[:, 2:], generate_texture_array(image(), (4, 4))[:, :1].mul(9).clamp(max=1))
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
            generate_texture_array(image(), (2, 2), channels, features=features)
        array = generate_texture_array(
            image(), (2, 2), channels, features=features, previous_relevance=relevance
        )
        assert torch.allclose(array[:, 3], relevance)
