"""The preset "full40": its channels in their order, and the laws of every channel with and without a clip."""

from __future__ import annotations

import pytest
import torch

from arr_coc import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.channels import CHANNEL_GROUPS, PRESETS
from arr_coc.choose.texture import channel_groups, channel_names, generate_texture_array, texture_size
from each import each
from texture_inputs import WIDTH, basis, clip_inputs, needed

ORDER = (
    *("red", "green", "blue"),  # 0-2
    *("y", "x", "eccentricity.0"),  # 3-5
    *("edges", "no_edges"),  # 6-7
    *("high_pass", "low_pass"),  # 8-9
    "motion.0",  # 10
    "conspicuity.0",  # 11
    "edge_distance.0",  # 12
    *("region_size", "region_contrast", "region_border"),  # 13-15
    "text_mask.0",  # 16
    *(f"components.{i}" for i in range(16)),  # 17-32
    *("warped_relevance", "smoothed_relevance", "frame_difference", "scene_cut"),  # 33-36
    *("attention_history", "change_distance", "age"),  # 37-39
)
TEMPORAL = ORDER[33:]


def image(height=64, width=96, batch=1, seed=0) -> torch.Tensor:
    return torch.rand(batch, 3, height, width, generator=torch.Generator().manual_seed(seed))


def named(array: torch.Tensor, channels="full40") -> dict[str, torch.Tensor]:
    return dict(zip(channel_names(channels), array.unbind(1), strict=True))


def test_names_and_count_are_those_of_the_plan_in_its_order():
    assert channel_names("full40") == ORDER
    assert texture_size("full40") == 40


def test_full20_is_what_remains_without_costly_groups_and_needs_an_image_alone():
    cheap = [group.name for group in channel_groups("full40") if group.cost != "costly"]
    assert list(PRESETS["full20"]) == cheap
    assert not any(group.needs for group in channel_groups("full20"))
    assert texture_size("full20") == 20


def test_costly_groups_say_their_price_and_readers_their_neutral_value():
    for group in CHANNEL_GROUPS.values():
        assert bool(group.price) == (group.cost == "costly")
        assert bool(group.neutral) == bool(group.reads)


@each("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@each("frames", [0, 1, 3, 11])
def test_every_channel_is_finite_in_the_unit_range_and_deterministic(dtype, frames):
    x = image(batch=2).to(dtype)
    optional = needed("full40", 2) | (clip_inputs(2, (64, 96), (4, 6), frames) if frames else {})
    array = generate_texture_array(x, (4, 6), "full40", **optional)
    assert array.shape == (2, 40, 4, 6)
    assert array.dtype == dtype
    assert array.isfinite().all()
    assert array.min() >= 0
    assert array.max() <= 1
    assert torch.equal(array, generate_texture_array(x, (4, 6), "full40", **optional))


def test_autocast_changes_nothing():
    optional = needed("full40") | clip_inputs(1, (64, 96), (4, 6))
    plain = generate_texture_array(image(), (4, 6), "full40", **optional)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(generate_texture_array(image(), (4, 6), "full40", **optional), plain)


@each("value", [0.0, 1.0, 0.5])
@each("scale", [0.0, 1e-30, 1e30])
def test_finite_for_blank_pages_and_any_finite_features(value, scale):
    x = torch.full((1, 3, 40, 24), value)
    optional = needed("full40") | {"previous_frames": x[:, None], "previous_relevance": torch.ones(1, 5, 3)}
    optional["coarse_features"] = optional["coarse_features"] * scale
    array = generate_texture_array(x, (5, 3), "full40", **optional)
    assert array.isfinite().all()
    assert 0 <= array.min() <= array.max() <= 1


def test_each_image_of_a_batch_has_its_own_channels():
    both = image(batch=2)
    optional = needed("full40", 2) | clip_inputs(2, (64, 96), (4, 6))
    own = {n: v if n == "basis" else v[1:] for n, v in optional.items()}
    together = generate_texture_array(both, (4, 6), "full40", **optional)
    alone = generate_texture_array(both[1:], (4, 6), "full40", **own)
    assert torch.allclose(together[1:], alone, atol=1e-4)


def test_a_still_has_the_neutral_values_that_are_documented():
    by_name = named(generate_texture_array(image(), (4, 6), "full20"), "full20")
    for name in (*TEMPORAL, "motion.0"):
        assert (by_name[name] == (1.0 if name == "change_distance" else 0.0)).all()


def test_a_missing_need_is_named():
    with pytest.raises(ValueError, match=r"'text_mask' needs text_evidence.*leave the group out"):
        generate_texture_array(image(), (4, 6), "full40")
    some = needed("full40")
    del some["basis"]
    with pytest.raises(ValueError, match=r"'components' needs basis.*fit_basis"):
        generate_texture_array(image(), (4, 6), "full40", **some)


def test_a_layer_of_full40_chooses_and_one_of_full20_needs_an_image_alone():
    config = ARRCOCConfig(dim=8, channels="full40")
    assert ARRCOCConfig.from_dict(config.to_dict()) == config
    x, words = image(batch=1), torch.randn(1, 3, 8)
    output = ARRCOCLayer(config)(None, words, x, (4, 6), budget=5, texture_inputs=needed("full40"))
    assert output.allocations[0].kept == 5
    assert ARRCOCLayer(ARRCOCConfig(8, "full20"))(None, words, x, (4, 6), budget=5).allocations[0].kept == 5


class TestTextMask:
    def test_a_cell_has_its_best_place(self):
        evidence = torch.zeros(1, 8, 8)
        evidence[0, 1, 6] = 0.9
        mask = generate_texture_array(image(), (2, 2), ["text_mask"], text_evidence=evidence)[0, 0]
        assert torch.allclose(mask, torch.tensor([[0, 0.9], [0, 0]]))

    def test_a_coarse_map_on_a_finer_grid(self):
        evidence = torch.tensor([[[0.1, 0.8]]])
        mask = generate_texture_array(image(), (2, 4), ["text_mask"], text_evidence=evidence)[0, 0]
        assert torch.allclose(mask, torch.tensor([0.1, 0.1, 0.8, 0.8]).expand(2, 4))


class TestComponents:
    def test_the_projection_of_a_coarse_view_on_its_own_grid(self):
        features, own = torch.randn(1, WIDTH, 4, 6), basis()
        array = generate_texture_array(image(), (4, 6), ["components"], coarse_features=features, basis=own)
        assert torch.allclose(array, own.project(features), atol=1e-6)

    def test_a_basis_of_other_features_or_of_few_components(self):
        with pytest.raises(ValueError, match=r"basis is for features \[B, 24, h, w\], got \(1, 5, 3, 2\)"):
            generate_texture_array(
                image(), (4, 6), ["components"], coarse_features=torch.rand(1, 5, 3, 2), basis=basis()
            )
        few = type(basis())(torch.zeros(5), torch.eye(5)[:3], torch.ones(3))
        with pytest.raises(ValueError, match="needs a basis of 16 components, got 3"):
            generate_texture_array(
                image(), (4, 6), ["components"], coarse_features=torch.rand(1, 5, 3, 2), basis=few
            )


class TestClusters:
    def test_a_red_block_on_white_is_a_region_of_its_own(self):
        x = torch.ones(1, 3, 128, 128)
        x[..., 32:64, 64:128] = torch.tensor([0.9, 0.1, 0.1]).view(3, 1, 1)
        by_name = named(generate_texture_array(x, (8, 8), ["clusters"]), ["clusters"])
        inside, outside = by_name["region_contrast"][0, 2:4, 4:], by_name["region_contrast"][0, 5:, :]
        assert inside.min() > 3 * outside.max()
        border = by_name["region_border"][0]
        assert border[2:4, 4].min() > 0  # its left edge
        assert 0 < by_name["region_size"].min() <= by_name["region_size"].max() < 0.6

    def test_sizes_weighed_by_cells_are_those_of_a_partition(self):
        """The mean over places of a region's share is the sum of squared shares: between 1/16 and 1."""
        size = named(generate_texture_array(image(128, 128), (8, 8), ["clusters"]), ["clusters"])[
            "region_size"
        ]
        assert 1 / 16 - 1e-6 <= size.mean() <= 1

    def test_one_cell(self):
        size, contrast, border = generate_texture_array(image(), (1, 1), ["clusters"])[0, :, 0, 0]
        assert size > 0
        assert contrast >= 0
        assert 0 <= border <= 1


def test_conspicuity_joins_the_three_maps_of_saliency():
    three = generate_texture_array(image(), (4, 6), ["saliency"])
    one = generate_texture_array(image(), (4, 6), ["conspicuity"])
    assert torch.allclose(one[:, 0], 1 - (1 - three).prod(1), atol=1e-6)
