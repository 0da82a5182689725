"""Foreign pictures: said beside the answer, whatever the mode, at the price of one look of the stem."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw

from arr_coc import ARRCOCModel, ARRCOCQwen
from arr_coc.choose.stem import FOREIGN, GUIDED, Stem
from arr_coc.modes import MODES
from arr_coc.modes.scoring import foreign_visuals
from arr_coc.selector import Selector
from arr_coc.store.checkpoint import load_base
from arr_coc.video import open_clip
from arr_coc_lab.world import draw_page


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCQwen.from_pretrained(device="cpu")


def circle_of(side: int) -> Image.Image:
    image = Image.new("RGB", (side, side), "white")
    ImageDraw.Draw(image).ellipse([round(share * side) for share in (0.28, 0.28, 0.72, 0.72)], "red")
    return image


@pytest.fixture(scope="module")
def circle() -> Image.Image:
    return circle_of(320)


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_about_a_foreign_picture_says_so_in_every_mode(
    model: ARRCOCModel, circle: Image.Image, mode: str
) -> None:
    answer = model.ask(circle, "What colour is the circle?", mode=mode, max_new_tokens=1)
    assert answer.foreign
    assert answer.note is not None
    assert FOREIGN in answer.note


@pytest.mark.parametrize("mode", ["sparse", "prune"])
def test_an_answer_about_a_drawn_page_does_not(model: ARRCOCModel, mode: str) -> None:
    answer = model.ask(draw_page(740, (320, 320), "test").image, "Title?", mode=mode, max_new_tokens=1)
    assert not answer.foreign
    assert answer.note is None or FOREIGN not in answer.note


def test_one_of_several_is_enough(model: ARRCOCModel, circle: Image.Image) -> None:
    page = draw_page(741, (320, 320), "test").image
    session = model.session([page, circle])
    assert session.ask("What is the title?", max_new_tokens=1).foreign


def test_the_stem_looks_once(
    model: ARRCOCModel, circle: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    stem = model.stem
    assert stem is not None
    handle = stem.register_forward_hook(lambda *_: calls.append(1))
    session = model.session(circle)
    for mode in ("prune", "sparse", "sparse", "full"):
        session.ask("What?", mode=mode, budget=16, max_new_tokens=1)
    handle.remove()
    assert 1 <= len(calls) <= 2  # modes with other LoRAs share pixels, not tokens


CHOOSING = [
    pytest.param(name, 768 if mode.gestalt else 320, marks=pytest.mark.slow if mode.gestalt else ())
    for name, mode in MODES.items()
    if mode.chooses
]
"""Modes with the side of a picture of which cells are chosen in each."""


def relevant(model: ARRCOCModel, relevance: str) -> ARRCOCModel:
    return ARRCOCModel.wrap(model, relevance=relevance)


@pytest.mark.parametrize(("mode", "side"), CHOOSING)
def test_of_a_foreign_picture_the_guide_chooses_and_says_so(model: ARRCOCModel, mode: str, side: int) -> None:
    picture = circle_of(side)
    answer = model.ask(picture, "Where is the red circle?", budget=40, mode=mode, max_new_tokens=1)
    by_guide = relevant(model, "guide").look(picture, "Where is the red circle?", budget=40, mode=mode)
    assert torch.equal(answer.allocation.keep, by_guide.keep)
    assert torch.equal(answer.allocation.balanced, by_guide.balanced)
    assert answer.note is not None
    assert answer.note == FOREIGN  # which says more than that the guide chose
    assert GUIDED in (answer.allocation.note or "")
    assert answer.couplings


@pytest.mark.parametrize(("mode", "side"), CHOOSING)
def test_a_relevance_that_is_named_stays(model: ARRCOCModel, mode: str, side: int) -> None:
    picture, trained = circle_of(side), relevant(model, "trained")
    answer = trained.ask(picture, "Where is the red circle?", budget=40, mode=mode, max_new_tokens=1)
    unfamiliar = relevant(model, "auto")
    assert unfamiliar.stem is not None
    unit, unfamiliar.stem.familiarity = unfamiliar.stem.familiarity, None
    try:
        own = unfamiliar.look(picture, "Where is the red circle?", budget=40, mode=mode)
    finally:
        unfamiliar.stem.familiarity = unit
    assert torch.equal(answer.allocation.keep, own.keep)
    assert answer.foreign
    assert GUIDED not in (answer.note or "")
    assert FOREIGN in (answer.note or "")


@pytest.mark.parametrize(("mode", "side"), CHOOSING)
def test_a_familiar_picture_gets_the_allocator_s_own_cells(model: ARRCOCModel, mode: str, side: int) -> None:
    page = draw_page(740, (side, side), "test").image
    ours = model.look(page, "What is the title?", budget=40, mode=mode)
    theirs = relevant(model, "trained").look(page, "What is the title?", budget=40, mode=mode)
    assert torch.equal(ours.order, theirs.order)
    assert torch.equal(ours.balanced, theirs.balanced)
    assert ours.note is None


def test_of_several_pictures_each_goes_by_its_own(model: ARRCOCModel) -> None:
    page, own = draw_page(740, (320, 320), "test").image, circle_of(320)
    both = model.session([page, own]).looks("What is the title?", budget=40)
    alone = [model.look(one, "What is the title?", budget=40) for one in (page, own)]
    assert [one.note and GUIDED in one.note for one in both] == [None, True]
    assert torch.equal(both[0].keep, alone[0].keep)
    assert torch.equal(both[1].keep, alone[1].keep)


def test_generate_and_the_selector_choose_alike(model: ARRCOCModel) -> None:
    picture, question = circle_of(320), "Where is the red circle?"
    session = model.session(picture)
    made = model.generate(
        **session.inputs(question), budget=40, max_new_tokens=1, return_allocation=True, pictures=[picture]
    )
    by_selector = Selector.from_pretrained("bundled")(picture, question, budget=40)
    assert torch.equal(made.allocations[0].keep, model.look(picture, question, budget=40).keep)
    assert torch.equal(made.allocations[0].keep, by_selector.keep)
    assert GUIDED in (made.note or "")
    assert GUIDED in (by_selector.note or "")
    assert GUIDED not in (
        Selector.from_pretrained("bundled", relevance="trained")(picture, question, budget=40).note or ""
    )
    with pytest.raises(ValueError, match="is of a wrapped model: use ARRCOCModel"):
        Selector.from_pretrained("bundled", relevance="gaze")


@pytest.mark.parametrize(("foreign", "mode"), [(True, "sparse"), (True, "full"), (False, "sparse")])
def test_a_clip_is_foreign_if_most_of_its_frames_are(model: ARRCOCModel, foreign: bool, mode: str) -> None:
    page = draw_page(740, (320, 320), "test").image
    frames = [circle_of(320)] * 6 + [page] * 2 if foreign else [page] * 6 + [circle_of(320)] * 2
    session = model.session(open_clip(frames, fps=2.0))
    answer = session.ask("Where is the red circle?", budget=20, mode=mode, max_new_tokens=1)
    assert answer.foreign == foreign
    assert (FOREIGN in (answer.note or "")) == foreign
    assert (GUIDED in (answer.allocation.note or "")) == (foreign and mode != "full")


@pytest.mark.parametrize("mode", ["sparse", "prune", "full"])
def test_no_answer_is_lost_to_it(
    model: ARRCOCModel, circle: Image.Image, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(model.stem, "forward", lambda *_: 1 / 0)
    answer = model.ask(circle, "What?", mode=mode, budget=16, max_new_tokens=1)
    assert not answer.foreign
    assert answer.fallback == (mode == "sparse")
    monkeypatch.setattr(model, "strict", True)
    with pytest.raises(ZeroDivisionError):
        model.ask(circle, "What?", mode=mode, budget=16, max_new_tokens=1)


def test_without_a_stem_nobody_can_say(model: ARRCOCModel, circle: Image.Image) -> None:
    assert foreign_visuals(model.adapter, None, None, {}, None) == []  # type: ignore[arg-type]
    bare = ARRCOCModel(model.base, model.processor)
    assert not bare.ask(circle, "What?", max_new_tokens=1).foreign


@pytest.fixture(scope="module", params=["no stem", "a stem of its own"])
def anew(
    model: ARRCOCModel, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """An allocator that somebody trained for the bundled base model, without the bundled stem."""
    folder, dim = tmp_path_factory.mktemp("anew"), model.layer.config.dim
    stem = None if request.param == "no stem" else Stem(dim)
    ARRCOCModel(model.base, model.processor, model.layer, stem=stem, base_name="bundled").save_pretrained(
        folder
    )
    return folder


@pytest.mark.slow
def test_an_allocator_trained_anew_for_the_bundled_model_says_so_too(
    model: ARRCOCModel, circle: Image.Image, anew: Path
) -> None:
    page = draw_page(742, (320, 320), "test").image
    wrapped = ARRCOCModel.wrap(model.base, model.processor, allocator=anew)
    for loaded in (ARRCOCQwen.from_pretrained(anew, device="cpu"), wrapped, ARRCOCModel.wrap(wrapped)):
        assert loaded.stem is None or loaded.stem.familiarity is None
        for mode in ("prune", "sparse"):
            answer = loaded.ask(circle, "What colour is the circle?", mode=mode, max_new_tokens=1)
            assert answer.foreign
            assert FOREIGN in (answer.note or "")
            assert not loaded.ask(page, "What is the title?", mode=mode, max_new_tokens=1).foreign


@pytest.mark.slow
def test_the_stem_that_says_so_chooses_nothing_and_is_not_saved(
    model: ARRCOCModel, circle: Image.Image, anew: Path, tmp_path: Path
) -> None:
    loaded = ARRCOCQwen.from_pretrained(anew, device="cpu")
    bare = ARRCOCModel(loaded.base, loaded.processor, loaded.layer, stem=loaded.stem)
    for mode in ("prune", "sparse"):
        ours, without = (m.session(circle) for m in (loaded, bare))
        ours.ask("What colour?", mode=mode, budget=16, max_new_tokens=1)
        keep = ours.look("What colour?", mode=mode, budget=16).keep
        assert torch.equal(keep, without.look("What colour?", mode=mode, budget=16).keep)
    assert loaded.default_mode == bare.default_mode
    loaded.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in anew.iterdir())


@pytest.mark.slow
def test_another_base_model_is_not_judged_by_the_bundled_stem(
    model: ARRCOCModel, circle: Image.Image, tmp_path: Path
) -> None:
    model.base.save_pretrained(tmp_path / "base")
    model.processor.save_pretrained(tmp_path / "base")
    base, processor = load_base(tmp_path / "base")
    ARRCOCModel(base, processor, model.layer).save_pretrained(tmp_path / "allocator")
    other = ARRCOCQwen.from_pretrained(tmp_path / "allocator", device="cpu")
    assert other.familiarity_stem is None
    assert not other.ask(circle, "What?", max_new_tokens=1).foreign


def test_only_the_bundled_model_says_what_it_can_do(model: ARRCOCModel) -> None:
    assert model.about is not None
    assert "5 million" in model.about
    assert round(sum(p.numel() for p in model.base.parameters()) / 1e6) == 5
    assert ARRCOCModel(model.base, model.processor, base_name="another").about is None
