"""What each image of a call is scored by: cues, textures, and the guide's word."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.channels import CHANNEL_GROUPS, ChannelGroup
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, read_layer
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.choose.texture import channel_names
from arr_coc.families import adapter_for
from arr_coc.files.pixels import image_pixels
from arr_coc.guide import coupling as coupling_module
from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.guide.guide import GUIDE_FILE, Guide, GuidePage, load_guide, save_guide, text_evidence
from arr_coc.guide.trust import SENTENCES
from arr_coc.model import ARRCOCModel
from arr_coc.modes import MODES, scoring
from arr_coc.modes.call import EncodedImages
from arr_coc.modes.request import new_call, resolve
from arr_coc.modes.route import cues_for
from arr_coc.modes.scoring import gather, question_embeddings, question_texts, stretch, whole_picture
from arr_coc.relevance.deciding import Cues, LookedAt, score_cells
from arr_coc.seam import FamilyAdapter
from arr_coc.selector import Selector
from arr_coc.store.checkpoint import GUIDE
from arr_coc.train.learner import fit_coarse_basis, needs_basis
from clip_models import clip_model, drawn_clip, frame
from eyes import IMAGES, KINDS, ROWS, build, inputs_of, prepared_for, set_constants, wrapped
from near import near
from tiny import FAMILIES, WIDTH, picture, prompts, tiny

GUIDED = GuideSource()
QUESTION = "Where is the disc?"
TALK = [("One?", [picture(1), picture(2)]), ("Another one, longer?", [picture(1)])]


def watch() -> Stopwatch:
    return Stopwatch(torch.device("cpu"))


def set_up(rows: list = TALK) -> tuple[FamilyAdapter, ARRCOCLayer, dict[str, Any], EncodedImages]:
    built = tiny("qwen3_vl")
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, rows)
    with torch.no_grad():
        encoded = EncodedImages(adapter.features(inputs))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return adapter, ARRCOCLayer(ARRCOCConfig(dim=WIDTH)).eval(), inputs, encoded


@torch.no_grad()
def gathered(rows: list = TALK, **more: Any) -> list[Cues]:
    """Cues with every cell encoded."""
    adapter, layer, inputs, encoded = set_up(rows)
    features = encoded.features
    cells = [features.cell_tokens(image) for image in range(len(features.grids))]
    return gather(adapter, layer, inputs, encoded, features.layout, watch(), cells=cells, **more)


def same(one: Cues, other: Cues, atol: float = 0.0) -> bool:
    return all(
        (a is None and b is None) or torch.allclose(a.float(), b.float(), rtol=0, atol=atol)
        for a, b in zip(one, other, strict=True)
    )


class TestQuestionEmbeddings:
    @torch.no_grad()
    def test_words_of_the_question_alone_whatever_the_padding(self) -> None:
        adapter, _, inputs, _ = set_up()
        like = torch.zeros((), dtype=torch.float64)
        embed, words = adapter.model.get_input_embeddings(), adapter.processor.tokenizer
        rows = question_embeddings(adapter, inputs, like)
        for (question, _), row in zip(TALK, rows, strict=True):
            ids = words(question.replace(" ", ""), add_special_tokens=False, return_tensors="pt")["input_ids"]
            assert row.dtype == torch.float64
            assert torch.equal(row, embed(ids[0]).double())

    @torch.no_grad()
    def test_without_words_of_its_own_all_text_of_the_prompt_that_is_no_image(self) -> None:
        adapter, _, inputs, _ = set_up([("", [picture(1)]), ("One?", [picture(1)])])
        silent, spoken = question_embeddings(adapter, inputs, torch.zeros(()))
        ids = inputs["input_ids"][0][inputs["attention_mask"][0].bool()]
        text = ids[ids != adapter.image_token_id]
        assert torch.equal(silent, adapter.model.get_input_embeddings()(text))
        assert len(spoken) == 4


class TestGather:
    def test_each_image_has_the_question_of_its_row(self) -> None:
        cues = gathered()
        assert torch.equal(cues[0].query, cues[1].query)
        assert cues[0].query.shape != cues[2].query.shape
        assert torch.equal(cues[0].texture, cues[2].texture)  # same picture, another question
        assert all(bool(one.query_mask.all()) for one in cues)
        for row, images in ((0, cues[:2]), (1, cues[2:])):
            for one, other in zip(gathered([TALK[row]]), images, strict=True):
                assert same(one, other, atol=1e-5)

    def test_scores_are_those_of_each_row_alone(self) -> None:
        layer = set_up()[1]
        maps = score_cells(layer, gathered())
        assert [relevance.balanced.shape for relevance in maps] == [(1, 6, 6)] * 3
        assert not torch.equal(maps[0].participatory, maps[2].participatory)
        for row, picked in ((0, maps[:2]), (1, maps[2:])):
            alone = score_cells(layer, gathered([TALK[row]]))
            for one, other in zip(alone, picked, strict=True):
                assert near(one.balanced, other.balanced)

    def test_nothing_needs_to_be_encoded(self) -> None:
        adapter, layer, inputs, _ = set_up()
        layout, unknown = adapter.layout(inputs), EncodedImages()
        with torch.no_grad():
            blind = gather(adapter, layer, inputs, unknown, layout, watch())
        assert unknown.features is None
        assert all(map(torch.equal, unknown.pictures, adapter.images(inputs)))
        assert [(one.vision, one.gestalt, one.coupling) for one in blind] == [(None, None, None)] * 3
        for one, other in zip(score_cells(layer, blind), score_cells(layer, gathered()), strict=True):
            assert torch.equal(one.information, other.information)
            assert (one.participatory - other.participatory).abs().max() > 1e-3

    def test_textures_are_kept_for_the_next_question_by_their_channels(self) -> None:
        adapter, layer, inputs, encoded = set_up()
        layout, stopwatch = adapter.layout(inputs), watch()
        first = gather(adapter, layer, inputs, encoded, layout, stopwatch)
        again = gather(adapter, layer, inputs, encoded, layout, stopwatch)
        assert all(a.texture is b.texture for a, b in zip(first, again, strict=True))
        kept = [texture for one in encoded.looked for texture in one.textures.values()]
        assert all(map(torch.equal, kept, [one.texture for one in again]))
        assert [stage for stage, ms in stopwatch.ms.items() if ms] == ["texture"]
        other = ARRCOCLayer(ARRCOCConfig(dim=WIDTH, channels="fast13"))
        (fewer, *_) = gather(adapter, other, inputs, encoded, layout, stopwatch)
        assert not torch.equal(fewer.texture, first[0].texture)
        assert torch.equal(encoded.looked[0].textures["fast13", (6, 6)], fewer.texture)

    def test_channels_of_print_have_the_guides_evidence_of_each_picture(self) -> None:
        adapter, _, inputs, encoded = set_up()
        layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH, channels=("rgb", "sobel", "text_mask")))
        cues = gather(adapter, layer, inputs, encoded, adapter.layout(inputs), watch())
        for one, own in zip(cues, adapter.images(inputs), strict=True):
            evidence = text_evidence(load_guide(), own)[None, None]
            assert torch.equal(one.texture[:, -1:], F.adaptive_max_pool2d(evidence, one.texture.shape[-2:]))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_each_image_has_its_own_in_the_layers_dtype(self, dtype: torch.dtype) -> None:
        adapter, layer, inputs, _ = set_up()
        layer = layer.to(dtype)
        own = {
            "cells": [torch.full((36, WIDTH), float(i)) for i in range(3)],
            "gestalt": [torch.full((WIDTH,), 10.0 + i) for i in range(3)],
            "coupling": [torch.full((6, 6), 20.0 + i) for i in range(3)],
        }
        cues = gather(adapter, layer, inputs, EncodedImages(), adapter.layout(inputs), watch(), **own)
        for i, one in enumerate(cues):
            assert (one.vision == i).all()
            assert one.vision.shape == (1, 36, WIDTH)
            assert (one.gestalt == 10 + i).all()
            assert one.gestalt.shape == (1, WIDTH)
            assert (one.coupling == 20 + i).all()
            assert one.coupling.shape == (1, 6, 6)
            tensors = (one.texture, one.query, one.vision, one.gestalt, one.coupling)
            assert {tensor.dtype for tensor in tensors} == {next(layer.parameters()).dtype}


class TestEveryMode:
    """The cues of a mode are all that decides: whoever scores them keeps the cells that the mode keeps."""

    @torch.no_grad()
    @pytest.mark.parametrize(
        ("mode", "kind"),
        [
            ("prune", "guide"),
            ("prune", "stem"),
            ("sparse", "gaze"),
            ("sparse", "stem"),
            ("saccade", "covering"),
            ("saccade", "guide"),
        ],
    )
    def test_cues_decide(self, mode: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        set_constants(monkeypatch)
        model = wrapped(kind=kind)
        inputs = inputs_of(rows=[("What?", [picture(2, (96, 96))])])  # more cells than stay without a choice
        call = new_call(model.chooser, inputs, MODES[mode], 7, gestalt="resize")
        (cues,) = cues_for(model.chooser, resolve(model.chooser, call)[0])
        (expected,) = model.prepare(inputs, mode=mode, budget=7).allocations
        (record,) = model.layer.allocate(cues.relevance(model.layer), 7)
        assert expected.kept == 7 < expected.total
        assert torch.equal(record.keep, expected.keep)

    @pytest.mark.slow
    def test_what_is_known_of_cells(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An untrained layer has a coupling, a trained one cells; a gestalt is made only where it is read."""
        set_constants(monkeypatch)
        kinds = {}
        for kind in KINDS:
            for mode in ("prune", "sparse", "saccade"):
                chooser = build("qwen3_vl", kind).chooser
                call = new_call(chooser, inputs_of(), MODES[mode], 7, gestalt="resize")
                with torch.no_grad():
                    cues = cues_for(chooser, resolve(chooser, call)[0])[0]
                kinds[kind, mode] = tuple(
                    part is not None for part in (cues.vision, cues.gestalt, cues.coupling)
                )
        assert kinds == {
            ("guide", "prune"): (True, False, True),
            ("guide", "sparse"): (False, False, True),
            ("guide", "saccade"): (False, True, True),
            ("gaze", "prune"): (True, False, True),
            ("gaze", "sparse"): (False, False, True),
            ("gaze", "saccade"): (False, True, True),
            ("covering", "prune"): (True, False, False),
            ("covering", "sparse"): (True, True, False),
            ("covering", "saccade"): (True, True, False),
            ("stem", "prune"): (True, False, False),
            ("stem", "sparse"): (True, False, False),
            ("stem", "saccade"): (True, True, False),
        }


def test_stretch_is_linear_between_the_middles() -> None:
    coarse = torch.arange(4.0).view(1, 1, 4).expand(2, 3, 4)
    assert torch.allclose(stretch(coarse, (3, 4)), coarse)
    fine = stretch(coarse, (6, 8))
    assert fine.shape == (2, 6, 8)
    assert fine[0, 0].tolist() == [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]


def sure(confidence: float = 0.9, peak: int = 0) -> Any:
    """A guide that points at one cell."""

    def couple(source: Any, page: Any, question: str, grid: tuple[int, int]) -> Coupling:
        logits = torch.full(grid, -6.0)
        logits.view(-1)[peak] = 3.0
        return Coupling(logits, confidence, 0.0, 0.0)

    return couple


def set_couple(monkeypatch: pytest.MonkeyPatch, couple: Callable[..., Coupling]) -> None:
    """Let the guide say of each image what `couple` says."""
    monkeypatch.setattr(GuideSource, "couple", couple)
    monkeypatch.delattr(GuideSource, "couple_all")


def noted_looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shape of every picture that the guide encodes from now on, none of them enlarged."""
    monkeypatch.setattr(coupling_module, "ENLARGED", 1.0)
    looks: list[tuple[int, ...]] = []
    encode = Guide.encode

    def noted(self: Guide, pictures: Tensor) -> GuidePage:
        looks.extend(tuple(one.shape) for one in pictures)
        return encode(self, pictures)

    monkeypatch.setattr(Guide, "encode", noted)
    return looks


@pytest.mark.parametrize(
    ("family", "mode"),
    [("qwen3_vl", mode) for mode in ("prune", "sparse", "saccade", "weight")]
    + [("qwen3_5", "sparse"), ("llava", "prune"), ("llava_next", "prune"), ("llava_onevision", "weight")],
)
def test_it_decides_in_every_mode(family: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch)
    set_couple(monkeypatch, sure(peak=17))
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor, budget=7, strict=True)
    prepared = prepared_for(model, inputs_of(family), mode)
    assert len(prepared.couplings) == 2
    assert not prepared.fallback
    for allocation in prepared.allocations:
        if allocation.gates is not None and allocation.kept < allocation.total:
            assert int(allocation.order[0]) == 17
            assert allocation.note is None


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl"])
def test_nothing_is_encoded_and_no_layer_runs_for_a_sure_guide(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_couple(monkeypatch, sure())
    monkeypatch.setattr(scoring, "gaze", None)
    model = build(family, "guide")
    for name in ("coarse", "features"):
        monkeypatch.setattr(model.adapter, name, None)
    assert prepared_for(model, inputs_of(family), "sparse").read == [7, 7]


@pytest.mark.parametrize("relevance", ["auto", "guide", "gaze"])
def test_a_lost_guide_asks_the_models_own_layers(relevance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, look = [], scoring.gaze
    set_couple(monkeypatch, sure(confidence=0.1))
    monkeypatch.setattr(scoring, "gaze", lambda *a, **k: (calls.append(1), look(*a, **k))[1])
    prepared = prepared_for(build(kind="guide", relevance=relevance), inputs_of(), "sparse")
    assert bool(calls) == (relevance != "guide")
    assert (prepared.note == SENTENCES["nothing"]) == (relevance != "gaze")


def test_a_second_question_costs_the_head_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = noted_looks(monkeypatch)
    model = build(kind="guide")
    image = picture(3, (288, 240))
    session = model.session(image)
    for mode in ("sparse", "prune"):
        for question in ("What?", "Where is it?"):
            session.look(question, mode=mode)
    assert looks == [(3, 240, 288)], "once, as the user gave it"
    looks.clear()
    encoded = EncodedImages()
    for _ in range(2):
        prepared_for(model, inputs_of(), "sparse", encoded=encoded)
    assert len(looks) == 2, "two images of ordinary inputs, once each"


def test_an_answer_has_what_the_guide_said(monkeypatch: pytest.MonkeyPatch) -> None:
    set_couple(monkeypatch, sure(confidence=0.0))
    answer = build(kind="guide").session(IMAGES).ask("What?", max_new_tokens=1, budget=5)
    assert len(answer.couplings) == len(answer.allocations) == 2
    assert answer.note.count(SENTENCES["nothing"]) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_the_question_is_recovered(family: str) -> None:
    model, inputs = build(family, "guide"), inputs_of(family)
    layout = model.adapter.features(inputs).layout
    texts = question_texts(model.adapter, inputs, layout)
    assert [text.strip() for text in texts] == [question for question, _ in ROWS]


def test_without_a_tokenizer_the_model_looks_itself() -> None:
    built = tiny("qwen3_vl")
    model = ARRCOCModel.wrap(built.model, budget=7, strict=True)
    prepared = prepared_for(model, inputs_of(), "sparse")
    assert prepared.read == [7, 7]
    assert prepared.couplings == ()


class TestPictures:
    def test_the_users_own_resolution(self) -> None:
        source = picture(4, (400, 300))
        assert whole_picture(GUIDED, source, _small(source)).shape == (3, 300, 400)

    def test_a_crop_is_read_as_the_model_reads_it(self) -> None:
        source = picture(4, (400, 300))
        crop = _small(source)[:, :, 40:]
        assert whole_picture(GUIDED, source, crop) is crop
        assert whole_picture(GUIDED, None, crop) is crop

    @pytest.mark.parametrize("family", ["qwen3_vl", "gemma3", "idefics3", "paligemma"])
    def test_a_caller_of_generate_passes_them(self, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
        looks = noted_looks(monkeypatch)
        built = tiny(family)
        model = ARRCOCModel.wrap(built.model, built.processor, budget=7, strict=True)
        images = [picture(1, (3, 2)).resize((96, 72)), picture(2, (2, 3)).resize((72, 96))]
        inputs = prompts(built, [("Where?", images)])
        sources = [image.resize((4 * image.width, 4 * image.height)) for image in images]
        model.generate(**inputs, pictures=sources, max_new_tokens=1)
        assert looks == [(3, 288, 384), (3, 384, 288)]
        with pytest.raises(ValueError, match="1 pictures are passed, and the prompt has 2 images"):
            model.generate(**inputs, pictures=sources[:1], max_new_tokens=1)
        with pytest.raises(ValueError, match="pictures is a str"):
            model.generate(**inputs, pictures="page.png", max_new_tokens=1)


class TestInterrupted:
    """What stops half-way while a session looks at its pictures leaves the session as it was."""

    def test_the_next_question_is_decided(self, monkeypatch: pytest.MonkeyPatch) -> None:
        view, calls = GuideSource.view, []

        def stop_at_the_second(*of: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return view(*of)

        monkeypatch.setattr(GuideSource, "view", stop_at_the_second)
        monkeypatch.delattr(GuideSource, "view_all")
        session = build(kind="guide").session(list(IMAGES))
        with pytest.raises(KeyboardInterrupt):
            session.look("What?", budget=7)
        answer = session.ask("What?", budget=7, max_new_tokens=1)
        assert (answer.fallback, answer.kept) == (False, 14)

    def test_a_first_question_from_many_threads(self) -> None:
        session = build(kind="guide").session(list(IMAGES))
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: session.ask("What?", budget=7, max_new_tokens=1), range(8)))
        assert {(answer.fallback, answer.kept) for answer in answers} == {(False, 14)}


def _small(source: Any) -> Tensor:
    small = torch.nn.functional.interpolate(image_pixels(source), (96, 128), mode="bilinear", antialias=True)
    return small[0]


class TestOwnGuide:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        save_guide(Guide(), tmp_path / "mine")
        return tmp_path / "mine"

    def test_it_decides(self, folder: Path) -> None:
        built = tiny(FAMILIES[0])
        model = ARRCOCModel.wrap(built.model, built.processor, guide=folder)
        assert model.chooser.guide is load_guide(folder)
        assert model.chooser.guide is not load_guide()
        assert ARRCOCModel.wrap(model).chooser.guide is load_guide(folder)
        usual = ARRCOCModel.wrap(built.model, built.processor)
        own, bundled = (prepared_for(each, inputs_of(FAMILIES[0]), "prune") for each in (model, usual))
        pairs = zip(own.couplings, bundled.couplings, strict=True)
        assert all(not torch.equal(one.logits, other.logits) for one, other in pairs)

    def test_it_is_saved_with_what_was_learned(self, folder: Path, tmp_path: Path) -> None:
        """A model that is loaded again chooses as before, also one saved over where it came from."""
        built = tiny(FAMILIES[0])
        model = ARRCOCModel.wrap(built.model, built.processor, guide=folder)
        saved = tmp_path / "saved"
        model.save_pretrained(saved)
        for _ in range(2):
            assert (saved / GUIDE).read_bytes() == (folder / GUIDE_FILE).read_bytes()
            assert f"`{GUIDE}`" in (saved / "README.md").read_text()
            again = ARRCOCModel.wrap(built.model, built.processor, allocator=saved)
            assert again.guide == (saved / GUIDE).parent.absolute()
            own, other = (prepared_for(each, inputs_of(FAMILIES[0]), "prune") for each in (model, again))
            pairs = zip(own.couplings, other.couplings, strict=True)
            assert all(torch.equal(one.logits, two.logits) for one, two in pairs)
            assert Selector.from_pretrained(saved).guide is again.chooser.guide
            again.save_pretrained(saved)
        named = ARRCOCModel.wrap(built.model, built.processor, allocator=saved, guide=folder)
        assert named.guide == folder.absolute()

    def test_a_folder_that_is_moved_takes_nothing_from_a_loaded_model(self, folder: Path) -> None:
        built = tiny(FAMILIES[0])
        model = ARRCOCModel.wrap(built.model, built.processor, guide=folder)
        guide = model.chooser.guide
        folder.rename(folder.with_name("elsewhere"))
        assert model.chooser.guide is guide

    def test_without_one_that_of_before_is_gone_and_a_run_stays(self, folder: Path, tmp_path: Path) -> None:
        built = tiny(FAMILIES[0])
        ARRCOCModel.wrap(built.model, built.processor, guide=folder).save_pretrained(tmp_path)
        for place in (tmp_path, folder):  # the second is where somebody trained a guide
            ARRCOCModel.wrap(built.model, built.processor).save_pretrained(place)
            assert ARRCOCModel.wrap(built.model, built.processor, allocator=place).guide is None
        assert (folder / GUIDE_FILE).is_file()

    def test_the_selector_goes_by_it(self, folder: Path) -> None:
        assert Selector.from_pretrained(folder).guide is load_guide(folder)

    def test_a_folder_without_one_is_refused(self, tmp_path: Path) -> None:
        built = tiny(FAMILIES[0])
        with pytest.raises(ValueError, match="has no guide"):
            ARRCOCModel.wrap(built.model, built.processor, guide=tmp_path)


class TestRelevance:
    def test_a_trained_layer_stays_unless_named(self) -> None:
        inputs = inputs_of()
        assert prepared_for(build(kind="stem"), inputs, "sparse").couplings == ()
        assert prepared_for(build(kind="stem", relevance="trained"), inputs, "sparse").couplings == ()
        assert len(prepared_for(build(kind="stem", relevance="guide"), inputs, "sparse").couplings) == 2

    def test_refused(self) -> None:
        with pytest.raises(ValueError, match="relevance 'magic' is unknown; use one of auto, trained"):
            build(kind="guide", relevance="magic")
        with pytest.raises(ValueError, match="nobody has trained the layer"):
            build(kind="guide", relevance="trained")


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


def channel(looked: list[LookedAt], name: str) -> Tensor:
    """A channel of each image of the last call, [T, H, W]."""
    textures = [texture for one in looked for texture in one.textures.values()]
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
    textures = session.encoded("sparse").looked
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
    warped = channel(session.encoded("prune").looked, "warped_relevance")
    assert warped[1].max() == pytest.approx(float(maps[0].max()), abs=0.05)


def test_components_are_of_the_coarse_view(model: ARRCOCModel) -> None:
    session = model.session(frame(1, (64, 64)))
    session.look(QUESTION, budget=3, mode="sparse")
    (looked,) = session.encoded("sparse").looked
    view, (texture,) = looked.coarse, looked.textures.values()
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
            return channel(session.encoded("sparse").looked, "attention_history")

        first = session.ask("And the line?", budget=4, mode="sparse", max_new_tokens=1)
        assert attention([]).max() == 0  # no answer depends on another's
        turn = attention([("And the line?", first.text)])
        assert near(turn[0], first.allocation.balanced[0].float())
        assert attention([("Never asked here?", "No.")]).max() == 0
        assert attention([]).max() == 0

    def test_only_what_depends_on_it_is_made_again(self, model: ARRCOCModel) -> None:
        session = model.session(frame(3, (64, 64)))
        first = session.ask("And the line?", budget=4, mode="sparse", max_new_tokens=1)
        (looked,) = session.encoded("sparse").looked
        assert set(looked.cache.computed.values()) == {1}
        history = [("And the line?", first.text)]
        session.ask(QUESTION, budget=4, mode="sparse", max_new_tokens=1, history=history)
        assert {name for name, count in looked.cache.computed.items() if count > 1} == {"attention_memory"}


def test_a_second_question_about_a_clip_makes_relevance_channels_alone(model: ARRCOCModel) -> None:
    session = model.session(drawn_clip(8))
    session.look(QUESTION, budget=0.2, mode="sparse")
    session.look("What else?", budget=0.2, mode="sparse")
    again = [
        {n for n, count in one.cache.computed.items() if count > 1}
        for one in session.encoded("sparse").looked
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
