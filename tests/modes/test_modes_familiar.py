"""Foreign pictures: said beside the answer, whatever the mode, at the price of one look of the stem.

Run: pytest tests/modes/test_modes_familiar.py
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw

from arr_coc import ARRCOCModel, ARRCOCQwen
from arr_coc.core.familiarity import FOREIGN
from arr_coc.core.stem import Stem
from arr_coc.modes import MODES
from arr_coc.modes.familiar import foreign_images
from arr_coc.store.checkpoint import load_base
from arr_coc.world import draw_page


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCQwen.from_pretrained(device="cpu")


@pytest.fixture(scope="module")
def circle() -> Image.Image:
    image = Image.new("RGB", (320, 320), "white")
    ImageDraw.Draw(image).ellipse((90, 90, 230, 230), "red")
    return image


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_about_a_foreign_picture_says_so_in_every_mode(
    model: ARRCOCModel, circle: Image.Image, mode: str
) -> None:
    answer = model.ask(circle, "What colour is the circle?", mode=mode, max_new_tokens=1)
    assert answer.foreign
    assert answer.note is not None
    assert FOREIGN in answer.note


@pytest.mark.parametrize("mode", MODES)
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


def test_it_decides_nothing(model: ARRCOCModel, circle: Image.Image) -> None:
    stem = model.stem
    assert stem is not None
    with_it = model.look(circle, "What colour?", budget=16)
    unit, stem.familiarity = stem.familiarity, None
    try:
        answer = model.ask(circle, "What colour?", budget=16, max_new_tokens=1)
    finally:
        stem.familiarity = unit
    assert not answer.foreign
    assert torch.equal(answer.allocation.keep, with_it.keep)


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
    assert foreign_images(model.adapter, None, None, {}, None) == []  # type: ignore[arg-type]
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
