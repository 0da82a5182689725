"""`TextureCache`: a group is computed again when an input that it depends on changed, and only then."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from arr_coc.choose.channels import CHANNEL_GROUPS, ChannelGroup
from arr_coc.choose.texture import TextureCache, channel_groups, generate_texture_array
from texture_inputs import clip_inputs, needed

GRID = (4, 6)


def image(seed=0) -> torch.Tensor:
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
    cache, x, inputs = TextureCache(), image(), needed("full40")
    assert recomputed(cache, x, inputs) == ALL
    assert recomputed(cache, x, inputs) == set()


def test_a_second_question_computes_what_depends_on_questions():
    cache, x, inputs = TextureCache(), image(), needed("full40") | clip_inputs(1, (64, 96), GRID)
    recomputed(cache, x, inputs)
    inputs |= {"attention_history": torch.rand(1, 3, *GRID)}
    assert recomputed(cache, x, inputs) == {"attention_memory"}
    inputs |= {"previous_relevance": torch.rand(1, *GRID), "relevance_history": torch.rand(1, 2, *GRID)}
    assert recomputed(cache, x, inputs) == {"relevance_memory"}


def test_a_second_frame_computes_what_depends_on_frames():
    cache, x, inputs = TextureCache(), image(), needed("full40") | clip_inputs(1, (64, 96), GRID)
    recomputed(cache, x, inputs)
    later = inputs | {"previous_frames": torch.rand(1, 2, 3, 64, 96)}
    moving = {"motion", "frame_change", "change_memory", "relevance_memory"}
    assert recomputed(cache, x, later) == moving
    # Of another picture all is another but where the cells are.
    assert recomputed(cache, image(1), later) == ALL - {"position", "eccentricity"}


def test_another_view_of_the_encoder_computes_its_components_alone():
    cache, x, inputs = TextureCache(), image(), needed("full40")
    recomputed(cache, x, inputs)
    inputs["coarse_features"] = inputs["coarse_features"].clone()
    assert recomputed(cache, x, inputs) == {"components"}


def test_an_input_that_was_written_to_is_another():
    cache, x = TextureCache(), image()
    recomputed(cache, x, {}, ["rgb", "position"])
    x[:, 0] = 0
    assert recomputed(cache, x, {}, ["rgb", "position"]) == {"rgb"}


def test_an_input_that_is_no_longer_there_is_another():
    cache, x, clip = TextureCache(), image(), clip_inputs(1, (64, 96), GRID)
    recomputed(cache, x, clip, "full20")
    assert recomputed(cache, x, {}, "full20") == {
        "motion", "frame_change", "change_memory", "relevance_memory", "attention_memory"
    }  # fmt: skip


def test_grids_are_kept_side_by_side_and_batches_are_not_mixed():
    cache, x = TextureCache(), image()
    recomputed(cache, x, {}, "fast13")
    assert recomputed(cache, x, {}, "fast13", (3, 3)) == {g.name for g in channel_groups("fast13")}
    assert recomputed(cache, x, {}, "fast13") == set()
    assert "position" in recomputed(cache, torch.cat((x, x)), {}, "fast13")


def test_a_group_that_was_replaced_is_computed():
    cache, x = TextureCache(), image()
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
    cache, x = TextureCache(), image()
    generate_texture_array(x, GRID, "mvp13", cache=cache)
    mark = weakref.ref(x)
    del x
    gc.collect()
    assert mark() is None
    assert recomputed(cache, image(), {}, "mvp13") >= {"rgb"}


def test_tensors_of_inference_mode():
    with torch.inference_mode():
        cache, x = TextureCache(), image()
        assert recomputed(cache, x, {}, "mvp13")
        assert recomputed(cache, x, {}, "mvp13") == set()


@pytest.mark.parametrize(("cost", "depends"), [("free", {"features"}), ("cheap", {"features", "image"})])
def test_a_group_depends_on_what_it_needs_and_reads(cost, depends):
    group = ChannelGroup(
        "g", 1, "", cost, lambda c: c.cell_luma, needs={"features"}, reads="attention_history"
    )
    assert group.depends == depends | {"attention_history"}


def test_what_is_fixed_is_made_once_whatever_object_holds_it():
    cache, x = TextureCache({"image", "text_evidence"}), image()
    groups = channel_groups(["rgb", "position", "text_mask"])
    names = [group.name for group in groups]
    assert cache.ready(groups, GRID) is None
    inputs = needed(names)
    array = generate_texture_array(x, GRID, names, **inputs, cache=cache)
    whole = cache.ready(groups, GRID)
    assert whole is not None
    assert torch.equal(whole, array)
    again = generate_texture_array(x.clone(), GRID, names, **needed(names), cache=cache)
    assert torch.equal(again, array)
    assert set(cache.computed.values()) == {1}


def test_what_depends_on_a_question_is_never_whole():
    cache, x = TextureCache({"image"}), image()
    names = ["rgb", "attention_memory"]
    generate_texture_array(x, GRID, names, cache=cache)
    assert cache.ready(channel_groups(names), GRID) is None
    assert cache.ready(channel_groups(["rgb"]), GRID) is not None
