"""The texture array: laws of all presets, and what is kept from call to call."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from arr_coc.choose import texture as array
from arr_coc.choose.channels import (
    CHANNEL_GROUPS,
    PRESETS,
    ChannelContext,
    ChannelGroup,
    register_channel_group,
)
from arr_coc.choose.texture import (
    TextureCache,
    channel_groups,
    channel_names,
    generate_texture_array,
    texture_size,
)
from each import each
from texture_inputs import clip_inputs, needed

# ---- texture ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _restore_registry():
    groups = dict(CHANNEL_GROUPS)
    yield
    CHANNEL_GROUPS.clear()
    CHANNEL_GROUPS.update(groups)


def image(height=64, width=64, seed=0) -> torch.Tensor:
    return torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(seed))


def drawing() -> torch.Tensor:
    """A colour ramp with a red block and a striped one, [1, 3, 96, 128]."""
    y, x = torch.meshgrid(torch.arange(96.0) / 96, torch.arange(128.0) / 128, indexing="ij")
    ramp = torch.stack((x, y * 0.8 + 0.1, x * y))[None].clone()
    ramp[:, :, 24:40, 64:96] = torch.tensor([0.9, 0.1, 0.1]).view(3, 1, 1)
    ramp[:, :, 64:80:2, 16:48] = 0
    return ramp


class TestShape:
    @each("preset", PRESETS)
    @each("size", [(1, 1), (1, 300), (7, 3), (33, 65), (128, 96)])
    @each("grid", [(1, 1), (4, 4), (3, 7), (40, 2)])
    def test_any_image_on_any_grid(self, preset, size, grid):
        for clip in ({}, clip_inputs(1, size, grid)):
            array = generate_texture_array(image(*size), grid, preset, **needed(preset), **clip)
            assert array.shape == (1, texture_size(preset), *grid)
            assert array.min() >= 0
            assert array.max() <= 1

    @each("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_dtype_kept_and_computed_in_float32(self, dtype):
        exact = generate_texture_array(image().to(dtype).float(), (4, 4))
        array = generate_texture_array(image().to(dtype), (4, 4))
        assert array.dtype == dtype
        assert torch.equal(array, exact.to(dtype))

    def test_a_list_of_groups_in_its_order(self):
        array = generate_texture_array(image(), (4, 4), ["position", "rgb"])
        whole = generate_texture_array(image(), (4, 4), "mvp13")
        assert torch.equal(array, whole[:, [3, 4, 0, 1, 2]])

    def test_default_size_is_32x32(self):
        assert generate_texture_array(image(1024, 1024), (32, 32)).shape == (1, 13, 32, 32)


class TestLaw:
    def test_no_gradient(self):
        assert not generate_texture_array(image().requires_grad_(), (2, 2)).requires_grad

    def test_deterministic(self):
        assert torch.equal(generate_texture_array(image(), (4, 4)), generate_texture_array(image(), (4, 4)))

    def test_the_image_is_not_written_to(self):
        x, every = image(), tuple(CHANNEL_GROUPS)
        optional = needed(every) | clip_inputs(1, (64, 64), (4, 4))
        copies = {name: value.clone() for name, value in optional.items() if name != "basis"}
        generate_texture_array(x, (4, 4), every, **optional)
        assert torch.equal(x, image())
        assert all(torch.equal(optional[name], copy) for name, copy in copies.items())

    def test_batch_equals_single(self):
        a, b = image(seed=1), image(seed=2) * 0.2
        both = generate_texture_array(torch.cat((a, b)), (4, 4))
        assert torch.allclose(both[1:], generate_texture_array(b, (4, 4)), atol=1e-6)

    @each("preset", PRESETS)
    def test_no_value_is_read_back_from_an_accelerator(self, preset):
        picture = torch.empty(2, 3, 64, 48, device="meta")  # reading a value of it raises
        optional = {
            "features": torch.empty(2, 5, 4, 3, device="meta"),
            "previous_frames": torch.empty(2, 1, 3, 64, 48, device="meta"),
            "previous_relevance": torch.empty(2, 4, 3, device="meta"),
            "relevance_history": torch.empty(2, 1, 4, 3, device="meta"),
            "attention_history": torch.empty(2, 1, 4, 3, device="meta"),
        }
        own, shape = needed(preset, 2, "meta"), (2, texture_size(preset), 4, 3)
        assert generate_texture_array(picture, (4, 3), preset, **own).shape == shape
        assert generate_texture_array(picture, (4, 3), preset, **own, **optional).shape == shape

    @pytest.mark.parametrize(
        ("preset", "mean", "cell"),
        [
            (
                "mvp13",
                [0.50259, 0.47049, 0.23735, 0.5, 0.5, 0.00686, 0.01354, 0.0164, 0.06733, 0.14518, 0.3068,
                 0.07848, 0.45351],
                [0.7918, 0.28125, 0.20488, 0.41667, 0.6875, 0.00739, 0.02411, 0.0288, 0.0, 0.11634, 0.58362,
                 0.17389, 0.47004],
            ),
            (
                "fast13",
                [0.50259, 0.47049, 0.23735, 0.5, 0.5, 0.53689, 0.0164, 0.9836, 0.01633, 0.4545, 0.0, 0.36009,
                 0.30926],
                [0.7918, 0.28125, 0.20488, 0.41667, 0.6875, 0.29017, 0.0288, 0.9712, 0.00857, 0.46938, 0.0,
                 0.71405, 0.36056],
            ),
        ],
    )  # fmt: skip
    def test_presets_are_those_that_allocators_were_trained_on(self, preset, mean, cell):
        array = generate_texture_array(drawing(), (6, 8), preset)
        assert torch.allclose(array.mean((0, 2, 3)), torch.tensor(mean), atol=1e-4)
        assert torch.allclose(array[0, :, 2, 5], torch.tensor(cell), atol=1e-4)


class TestException:
    @pytest.mark.parametrize(("name", "value"), [("basis", torch.ones(3)), ("features", [[1.0]])])
    def test_an_input_of_another_kind(self, name, value):
        with pytest.raises(ValueError, match=f"{name} must be .*, got "):
            generate_texture_array(image(), (2, 2), **{name: value})

    def test_an_input_of_another_name(self):
        with pytest.raises(TypeError, match=r"unknown inputs \['depth'\]; a texture takes features, "):
            generate_texture_array(image(), (2, 2), depth=torch.zeros(1, 2, 2))

    @each(
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

    @each("grid", [(0, 2), (2,), (1, 2, 2)])
    def test_grid(self, grid):
        with pytest.raises(ValueError, match="grid must be"):
            generate_texture_array(image(), grid)

    @each("channels", ["full41", ["rgb", "nonsense"], []])
    def test_channels(self, channels):
        with pytest.raises(ValueError, match=r"unknown (texture preset|channel groups)"):
            generate_texture_array(image(), (2, 2), channels)

    def test_rounding_outside_is_clamped(self):
        assert generate_texture_array(torch.full((1, 3, 8, 8), 1.004), (2, 2)).max() <= 1
        register_channel_group(
            ChannelGroup(
                "before", 2, "", "free",
                lambda c: torch.stack((c.previous_relevance, c.per_cell(c.previous_luma)[:, 0]), 1) / 2,
                needs={"previous_frames", "previous_relevance"},
            )
        )  # fmt: skip
        optional = {
            "previous_frames": torch.full((1, 1, 3, 8, 8), 1.004),
            "previous_relevance": torch.full((1, 2, 2), 1.004),
        }
        texture = generate_texture_array(torch.rand(1, 3, 8, 8), (2, 2), ["before"], **optional)
        assert torch.allclose(texture, torch.full((1, 2, 2, 2), 0.5), atol=1e-4)

    @each(
        ("name", "bad", "message"),
        [
            ("features", torch.zeros(1, 5, 4, 3), r"features must be .*\[1, any, 4, 4\], got \(1, 5, 4, 3\)"),
            ("features", torch.zeros(5, 4, 4), "features must be"),
            ("features", torch.zeros(1, 0, 4, 4), "features must be"),
            (
                "features",
                torch.zeros(1, 5, 4, 4, dtype=torch.long),
                "features must be .*float.*got torch.int64",
            ),
            ("features", torch.full((1, 5, 4, 4), torch.inf), "features must be finite"),
            ("features", torch.full((1, 5, 4, 4), torch.nan), "features must be finite"),
            ("features", torch.zeros(1, 5, 4, 4, device="meta"), "features is on meta and the image on cpu"),
            (
                "previous_frames",
                torch.zeros(1, 3, 64, 64),
                r"previous_frames must be .*\[1, any, 3, 64, 64\]",
            ),
            ("previous_frames", torch.zeros(1, 0, 3, 64, 64), "previous_frames must be"),
            ("previous_frames", torch.zeros(1, 2, 3, 64, 32), "previous_frames must be"),
            ("previous_frames", torch.full((1, 1, 3, 64, 64), 255.0), "previous_frames .* 255.*divide bytes"),
            ("previous_relevance", torch.zeros(2, 4, 4), r"previous_relevance must be .*\[1, 4, 4\]"),
            ("previous_relevance", torch.full((1, 4, 4), 7.0), "previous_relevance values .* 7; scale"),
            ("relevance_history", torch.zeros(1, 4, 4), r"relevance_history must be .*\[1, any, 4, 4\]"),
            ("attention_history", torch.zeros(1, 0, 4, 4), r"attention_history must be .*\[1, any, 4, 4\]"),
            ("attention_history", torch.full((1, 1, 4, 4), torch.nan), "attention_history values .*nan"),
            ("text_evidence", torch.zeros(1, 1, 4, 4), r"text_evidence must be .*\[1, any, any\]"),
            ("text_evidence", torch.full((1, 4, 4), -1.0), "text_evidence values .* -1 to -1; scale"),
            ("coarse_features", torch.zeros(2, 5, 4, 4), r"coarse_features must be .*\[1, any, any, any\]"),
            ("coarse_features", torch.full((1, 5, 4, 4), torch.inf), "coarse_features must be finite"),
        ],
    )
    def test_optional_inputs(self, name, bad, message):
        with pytest.raises(ValueError, match=message):
            generate_texture_array(image(), (4, 4), **{name: bad})

    @pytest.mark.parametrize("check", ["_finite", "_in_unit_range"])
    def test_a_row_that_an_accelerator_finds_unsound_is_nan(self, monkeypatch, check):
        """There the check is not read back, so it marks the row."""
        monkeypatch.setattr(array, check, lambda name, values: torch.tensor([True, False]))
        texture = generate_texture_array(torch.rand(2, 3, 8, 8), (2, 2), features=torch.rand(2, 1, 2, 2))
        assert texture[0].isfinite().all()
        assert texture[1].isnan().all()

    def test_optional_inputs_are_passed_by_name(self):
        with pytest.raises(TypeError):
            generate_texture_array(image(), (4, 4), "mvp13", torch.zeros(1, 5, 4, 4))

    @pytest.mark.parametrize("wrong", [lambda c: c.colour, lambda c: c.luma, lambda c: c.colour[:, :2, :1]])
    def test_a_group_that_returns_another_shape_than_it_declares(self, wrong):
        register_channel_group(ChannelGroup("two", 2, "", "free", wrong))
        with pytest.raises(ValueError, match="'two' returned"):
            generate_texture_array(image(), (4, 4), ["two"])


class TestOptionalInput:
    def test_a_group_gets_what_was_supplied_in_float32(self):
        contexts: list[ChannelContext] = []

        def keep(context: ChannelContext) -> torch.Tensor:
            contexts.append(context)
            return context.colour

        register_channel_group(ChannelGroup("keep", 3, "", "free", keep))
        optional = {
            "features": torch.randn(1, 5, 4, 2),
            "previous_frames": torch.rand(1, 2, 3, 64, 64),
            "previous_relevance": torch.rand(1, 4, 2),
        }
        doubles = {name: value.double() for name, value in optional.items()}
        generate_texture_array(image(), (4, 2), ["keep"], **doubles)
        generate_texture_array(image(), (4, 2), ["keep"])
        full, still = contexts
        assert torch.equal(full.image, image())
        assert full.grid == (4, 2)
        for name, value in optional.items():
            assert torch.equal(getattr(full, name), value)
        assert still.features is still.previous_frames is still.previous_relevance is None

    @pytest.mark.parametrize("need", ["features", "previous_frames", "previous_relevance"])
    def test_a_need_that_is_not_supplied(self, need):
        values = {
            "features": torch.rand(1, 1, 4, 4),
            "previous_frames": torch.rand(1, 1, 3, 64, 64),
            "previous_relevance": torch.rand(1, 4, 4),
        }
        register_channel_group(
            ChannelGroup("demanding", 1, "", "costly", lambda c: c.colour[:, :1], needs={need})
        )
        others = {name: value for name, value in values.items() if name != need}
        with pytest.raises(ValueError, match=f"'demanding' needs {need}.*pass `{need}`.*leave the group out"):
            generate_texture_array(image(), (4, 4), ["rgb", "demanding"], **others)
        array = generate_texture_array(image(), (4, 4), ["rgb", "demanding"], **{need: values[need]})
        assert array.shape == (1, 4, 4, 4)

    def test_features_and_relevance_become_channels_by_their_values(self):
        register_channel_group(
            ChannelGroup("strength", 1, "", "cheap", lambda c: c.features.mean(1, True), needs={"features"})
        )
        register_channel_group(
            ChannelGroup(
                "remembered", 1, "", "cheap", lambda c: c.previous_relevance[:, None] / 2,
                needs={"previous_relevance"},
            )
        )  # fmt: skip
        features = torch.tensor([[0.2, 0.4], [0.6, 3.0]]).expand(1, 7, 2, 2)
        relevance = torch.tensor([[[0.0, 1.0], [0.5, 0.1]]])
        array = generate_texture_array(
            image(), (2, 2), ("strength", "remembered"), features=features, previous_relevance=relevance
        )
        expected = torch.tensor([[[[0.2, 0.4], [0.6, 1.0]], [[0.0, 0.5], [0.25, 0.05]]]])
        assert torch.allclose(array, expected)

    @pytest.mark.parametrize("preset", ["mvp13", "fast13"])
    def test_presets_are_those_of_a_still_where_nothing_moves(self, preset):
        x = image()
        optional = {"features": torch.randn(1, 3, 4, 4), "previous_relevance": torch.rand(1, 4, 4)}
        clip = generate_texture_array(x, (4, 4), preset, previous_frames=x[:, None], **optional)
        assert torch.equal(clip, generate_texture_array(x, (4, 4), preset))

    def test_presets_need_nothing_but_an_image(self):
        for preset, size in {"mvp13": 13, "fast13": 13, "full20": 20}.items():
            assert texture_size(preset) == size == len(set(channel_names(preset)))
            for name in PRESETS[preset]:
                assert not CHANNEL_GROUPS[name].needs
                assert CHANNEL_GROUPS[name].cost != "costly"


# ---- texture cache ---------------------------------------------------------------------------------------

GRID = (4, 6)


def coloured(seed=0) -> torch.Tensor:
    return torch.rand(1, 3, 64, 96, generator=torch.Generator().manual_seed(seed))


def recomputed(cache: TextureCache, x: torch.Tensor, inputs: dict, channels="full40", grid=GRID) -> set[str]:
    """The groups that a call computed; the result is that of a call without the cache."""
    cache.computed.clear()
    array = generate_texture_array(x, grid, channels, **inputs, cache=cache)
    computed = set(cache.computed)
    assert torch.equal(array, generate_texture_array(x, grid, channels, **inputs))
    return computed


ALL = {group.name for group in channel_groups("full40")}


def test_the_same_call_again_computes_nothing():
    cache, x, inputs = TextureCache(), coloured(), needed("full40")
    assert recomputed(cache, x, inputs) == ALL
    assert recomputed(cache, x, inputs) == set()


def test_a_second_question_computes_what_depends_on_questions():
    cache, x, inputs = TextureCache(), coloured(), needed("full40") | clip_inputs(1, (64, 96), GRID)
    recomputed(cache, x, inputs)
    inputs |= {"attention_history": torch.rand(1, 3, *GRID)}
    assert recomputed(cache, x, inputs) == {"attention_memory"}
    inputs |= {"previous_relevance": torch.rand(1, *GRID), "relevance_history": torch.rand(1, 2, *GRID)}
    assert recomputed(cache, x, inputs) == {"relevance_memory"}


def test_a_second_frame_computes_what_depends_on_frames():
    cache, x, inputs = TextureCache(), coloured(), needed("full40") | clip_inputs(1, (64, 96), GRID)
    recomputed(cache, x, inputs)
    later = inputs | {"previous_frames": torch.rand(1, 2, 3, 64, 96)}
    moving = {"motion", "frame_change", "change_memory", "relevance_memory"}
    assert recomputed(cache, x, later) == moving
    # Of another picture all is another but where the cells are.
    assert recomputed(cache, coloured(1), later) == ALL - {"position", "eccentricity"}


def test_another_view_of_the_encoder_computes_its_components_alone():
    cache, x, inputs = TextureCache(), coloured(), needed("full40")
    recomputed(cache, x, inputs)
    inputs["coarse_features"] = inputs["coarse_features"].clone()
    assert recomputed(cache, x, inputs) == {"components"}


def test_an_input_that_was_written_to_is_another():
    cache, x = TextureCache(), coloured()
    recomputed(cache, x, {}, ["rgb", "position"])
    x[:, 0] = 0
    assert recomputed(cache, x, {}, ["rgb", "position"]) == {"rgb"}


def test_an_input_that_is_no_longer_there_is_another():
    cache, x, clip = TextureCache(), coloured(), clip_inputs(1, (64, 96), GRID)
    recomputed(cache, x, clip, "full20")
    assert recomputed(cache, x, {}, "full20") == {
        "motion", "frame_change", "change_memory", "relevance_memory", "attention_memory"
    }  # fmt: skip


def test_grids_are_kept_side_by_side_and_batches_are_not_mixed():
    cache, x = TextureCache(), coloured()
    recomputed(cache, x, {}, "fast13")
    assert recomputed(cache, x, {}, "fast13", (3, 3)) == {g.name for g in channel_groups("fast13")}
    assert recomputed(cache, x, {}, "fast13") == set()
    assert "position" in recomputed(cache, torch.cat((x, x)), {}, "fast13")


def test_a_group_that_was_replaced_is_computed():
    cache, x = TextureCache(), coloured()
    try:
        for scale in (0.5, 0.25):
            CHANNEL_GROUPS["mine"] = ChannelGroup(
                "mine", 1, "", "cheap", lambda c, scale=scale: scale * c.cell_luma
            )
            assert recomputed(cache, x, {}, ["mine"]) == {"mine"}
    finally:
        CHANNEL_GROUPS.pop("mine")


@pytest.mark.slow
def test_inputs_are_not_kept_alive():
    cache, x = TextureCache(), coloured()
    generate_texture_array(x, GRID, "mvp13", cache=cache)
    mark = weakref.ref(x)
    del x
    gc.collect()
    assert mark() is None
    assert recomputed(cache, coloured(), {}, "mvp13") >= {"rgb"}


def test_tensors_of_inference_mode():
    with torch.inference_mode():
        cache, x = TextureCache(), coloured()
        assert recomputed(cache, x, {}, "mvp13")
        assert recomputed(cache, x, {}, "mvp13") == set()


@pytest.mark.parametrize(("cost", "depends"), [("free", {"features"}), ("cheap", {"features", "image"})])
def test_a_group_depends_on_what_it_needs_and_reads(cost, depends):
    group = ChannelGroup(
        "g", 1, "", cost, lambda c: c.cell_luma, needs={"features"}, reads="attention_history"
    )
    assert group.depends == depends | {"attention_history"}


def test_what_is_fixed_is_made_once_whatever_object_holds_it():
    cache, x = TextureCache({"image", "text_evidence"}), coloured()
    names = ["rgb", "position", "text_mask"]
    array = generate_texture_array(x, GRID, names, **needed(names), cache=cache)
    again = generate_texture_array(x.clone(), GRID, names, **needed(names), cache=cache)
    assert torch.equal(again, array)
    assert set(cache.computed.values()) == {1}
