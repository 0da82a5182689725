"""Textures of a call: every channel group gets what the call can know, in every mode, on images and clips."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from arr_coc.choose.channels import CHANNEL_GROUPS, ChannelGroup
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, read_layer
from arr_coc.choose.texture import channel_names
from arr_coc.model import ARRCOCModel
from arr_coc.train.learner import fit_coarse_basis, needs_basis
from clip_models import clip_model, drawn_clip, frame
from near import near
from tiny import WIDTH

QUESTION = "Where is the disc?"


@pytest.fixture(scope="module")
def plain() -> ARRCOCModel:
    return clip_model()


def with_channels(plain: ARRCOCModel, channels: str | tuple[str, ...], trained: bool = True) -> ARRCOCModel:
    """The tiny model with a layer of these channels, whose basis is fitted where it needs one."""
    layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH, channels=channels)).eval()
    layer.trained = trained
    if needs_basis(layer):
        layer.basis = fit_coarse_basis(plain, [frame(i, (64, 64)) for i in range(8)])
    processor = copy.copy(plain.processor)
    return ARRCOCModel(plain.base, processor, layer, strict=True)


@pytest.fixture(scope="module")
def model(plain: ARRCOCModel) -> ARRCOCModel:
    return with_channels(plain, "full40")


def channel(textures: list[Tensor], name: str) -> Tensor:
    """A channel of each image of the last call, [T, H, W]."""
    return torch.cat([one[:, channel_names("full40").index(name)] for one in textures])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
def test_full40_runs_in_every_mode_that_chooses_on_images_and_clips(model: ARRCOCModel, mode: str) -> None:
    # Its tiny images are too small for a coarse view.
    images = [] if mode == "saccade" else [frame(2, (256, 256))]
    for source in (*images, drawn_clip(8, (256, 192))):
        answer = model.ask(source, QUESTION, budget=0.2, mode=mode, max_new_tokens=2)
        assert not answer.fallback
        assert answer.allocation.kept < answer.allocation.total


def test_channels_of_time_are_those_of_the_clip(model: ARRCOCModel) -> None:
    session = model.session(drawn_clip(16))
    session.look(QUESTION, budget=0.2, mode="sparse")
    textures = session.encoded("sparse").textures
    assert len(textures) == 8
    cut = channel(textures, "scene_cut").flatten(1).amax(1)
    assert cut.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]  # the frames from number 6 on are another scene
    assert channel(textures, "frame_difference")[0].max() == 0  # nothing is before the first
    assert channel(textures, "frame_difference")[1].max() > 0.02  # the disc moves
    assert channel(textures, "age")[7].max() > channel(textures, "age")[4].max()
    warped = channel(textures, "warped_relevance").flatten(1).amax(1)
    assert warped[0] == warped[3] == 0  # at the start, and after the cut
    assert (warped[[1, 2, 5, 6, 7]] > 0).all()


def test_relevance_of_earlier_steps_is_the_layers_own(model: ARRCOCModel) -> None:
    session = model.session(drawn_clip(4))
    original = model.layer.relevance
    maps: list[Tensor] = []

    def watched(*args: object, **more: object) -> object:
        made = original(*args, **more)
        maps.append(made.balanced)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.layer), "relevance", lambda self, *a, **k: watched(*a, **k))
        session.look(QUESTION, budget=0.2, mode="prune")
    warped = channel(session.encoded("prune").textures, "warped_relevance")
    assert warped[1].max() == pytest.approx(float(maps[0].max()), abs=0.05)


def test_components_are_of_the_coarse_view(model: ARRCOCModel) -> None:
    session = model.session(frame(1, (64, 64)))
    session.look(QUESTION, budget=3, mode="sparse")
    (view,) = session.encoded("sparse").views
    (texture,) = session.encoded("sparse").textures
    assert model.layer.basis is not None
    at = channel_names("full40").index("components.0")
    expected = model.layer.basis.project(view)
    assert near(texture[:, at : at + 16], torch.nn.functional.interpolate(
        expected, texture.shape[-2:], mode="bilinear", align_corners=False
    ))  # fmt: skip


class TestAttentionOfEarlierTurns:
    def test_a_conversation_is_remembered_and_a_question_by_itself_is_not(self, model: ARRCOCModel) -> None:
        session = model.session(frame(3, (64, 64)))

        def attention(history: list[tuple[str, str]]) -> Tensor:
            session.ask(QUESTION, budget=4, mode="sparse", max_new_tokens=1, history=history)
            return channel(session.encoded("sparse").textures, "attention_history")

        first = session.ask("And the line?", budget=4, mode="sparse", max_new_tokens=1)
        assert attention([]).max() == 0  # no answer depends on another's
        turn = attention([("And the line?", first.text)])
        assert near(turn[0], first.allocation.balanced[0].float())
        assert attention([("Never asked here?", "No.")]).max() == 0
        assert attention([]).max() == 0

    def test_only_what_depends_on_it_is_made_again(self, model: ARRCOCModel) -> None:
        session = model.session(frame(3, (64, 64)))
        first = session.ask("And the line?", budget=4, mode="sparse", max_new_tokens=1)
        caches = session.encoded("sparse").caches
        assert set(caches[0].computed.values()) == {1}
        history = [("And the line?", first.text)]
        session.ask(QUESTION, budget=4, mode="sparse", max_new_tokens=1, history=history)
        assert {name for name, count in caches[0].computed.items() if count > 1} == {"attention_memory"}


def test_a_second_question_about_a_clip_makes_relevance_channels_alone(model: ARRCOCModel) -> None:
    session = model.session(drawn_clip(8))
    session.look(QUESTION, budget=0.2, mode="sparse")
    session.look("What else?", budget=0.2, mode="sparse")
    again = [
        {n for n, count in cache.computed.items() if count > 1} for cache in session.encoded("sparse").caches
    ]
    assert again == [set(), *[{"relevance_memory"}] * 3]


@pytest.fixture
def group() -> Iterator[list[ChannelGroup]]:
    """Groups that a test registers; they are gone afterwards."""
    own: list[ChannelGroup] = []
    yield own
    for one in own:
        CHANNEL_GROUPS.pop(one.name, None)


def register(own: list[ChannelGroup], needs: str) -> tuple[str, ...]:
    made = ChannelGroup("mine", 1, "", "cheap", lambda c: c.cell_luma, needs=needs)
    CHANNEL_GROUPS["mine"] = made
    own.append(made)
    return ("rgb", "sobel", "mine")


class TestWhatCannotBeKnown:
    def test_a_basis_that_is_not_there_is_named_with_the_way_to_one(self, plain: ARRCOCModel) -> None:
        layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH, channels="full40"))
        with pytest.raises(ValueError, match=r"needs a basis .* fit_coarse_basis\(model, pictures\)"):
            ARRCOCModel(plain.base, plain.processor, layer)

    def test_a_basis_of_another_model_is_refused(self, plain: ARRCOCModel, model: ARRCOCModel) -> None:
        layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH, channels="full40"))
        layer.basis = fit_coarse_basis(plain, [frame(1)]).__class__(
            torch.zeros(5), torch.zeros(16, 5), torch.zeros(16)
        )
        with pytest.raises(ValueError, match="features 5 wide"):
            ARRCOCModel(plain.base, plain.processor, layer)

    def test_encoded_cells_are_there_once_all_are_encoded(
        self, plain: ARRCOCModel, group: list[ChannelGroup]
    ) -> None:
        model = with_channels(plain, register(group, "features"))
        assert model.look(frame(1, (64, 64)), QUESTION, budget=3, mode="prune").kept == 3
        with pytest.raises(ValueError, match="'mine' needs features, the encoded cells, and mode 'sparse'"):
            model.look(frame(1, (64, 64)), QUESTION, budget=3, mode="sparse")

    def test_a_group_that_needs_earlier_frames_has_the_picture_itself(
        self, plain: ARRCOCModel, group: list[ChannelGroup]
    ) -> None:
        model = with_channels(plain, register(group, "previous_frames"))
        assert model.look(frame(1, (64, 64)), QUESTION, budget=3, mode="prune").kept == 3

    def test_a_group_that_needs_earlier_attention_is_refused(
        self, plain: ARRCOCModel, group: list[ChannelGroup]
    ) -> None:
        channels = register(group, "attention_history")
        with pytest.raises(ValueError, match="'mine' needs attention_history, which no mode can know"):
            with_channels(plain, channels)


def test_a_basis_is_saved_with_its_layer(model: ARRCOCModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    layer = read_layer(tmp_path)
    assert layer.basis is not None
    assert model.layer.basis is not None
    assert torch.equal(layer.basis.components, model.layer.basis.components)
    untrained = layer.untrained()
    assert untrained.basis is layer.basis
