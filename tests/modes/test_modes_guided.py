"""The guide in every mode of every family: nothing trained, nothing named, and it decides."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from arr_coc.files.pixels import image_pixels
from arr_coc.guide import coupling as coupling_module
from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.guide.guide import GUIDE_FILE, Guide, GuidePage, load_guide, save_guide
from arr_coc.guide.trust import SENTENCES
from arr_coc.model import ARRCOCModel
from arr_coc.modes import scoring
from arr_coc.modes.call import EncodedImages
from arr_coc.modes.scoring import question_texts, whole_picture
from arr_coc.selector import Selector
from arr_coc.store.checkpoint import GUIDE
from eyes import IMAGES, ROWS, build, inputs_of, prepared_for, set_constants, sparse_families
from tiny import FAMILIES, picture, prompts, tiny

MODES = ("prune", "sparse", "saccade", "weight")


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


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", MODES)
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


@sparse_families
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


GUIDED = GuideSource()


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
