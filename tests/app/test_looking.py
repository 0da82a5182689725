"""The live view "Where it looks" without a browser."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import torch
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from arr_coc import selector
from arr_coc.app import asking, build_app, handlers
from arr_coc.app.looking import Looking, live_view, see
from arr_coc.app.samples import AppSample
from arr_coc.app.state import EncodedMemory, Tab
from arr_coc.choose.budget import DEFAULT_BUDGET
from arr_coc.files.saved import BUNDLED
from arr_coc.guide import coupling
from arr_coc.guide.guide import Guide, load_guide, prepared, save_guide
from clip_models import drawn_clip
from tiny import picture

QUESTION = "What is the total?"


@pytest.fixture(scope="module")
def guide() -> Guide:
    torch.manual_seed(0)
    return prepared(Guide(), torch.float32)


@pytest.fixture(autouse=True)
def untaught(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector, "load_guide", lambda *_, **__: guide)


@pytest.fixture
def image(tmp_path: Path) -> str:
    picture(1, (96, 64)).save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


def test_it_looks_at_a_picture_once(image: str) -> None:
    looking, tab = Looking(EncodedMemory()), Tab()
    view, said = handlers.on_look(looking, tab, image, QUESTION, 3)
    assert said == ""
    (strip,) = view["strips"]
    assert (view["kept"], view["total"], strip["grid"]) == (3, 6, [1, 2, 3])
    assert [spot["word"] for spot in strip["guidance"]["spots"]] == ["total"]
    record = tab.record
    view, _ = handlers.on_look(looking, tab, image, "Where is the date?", 100)
    assert view["kept"] == 6
    assert tab.record is record
    handlers.on_look(looking, tab, str(image), "Why?", 3)
    assert tab.record is record
    Image.new("RGB", (64, 64)).save(other := image.replace("photo", "other"))
    handlers.on_look(looking, tab, other, QUESTION, 3)
    assert tab.record is not record


def test_what_is_missing_or_wrong_is_said(image: str, tmp_path: Path) -> None:
    looking, tab = Looking(EncodedMemory()), Tab()
    assert handlers.on_look(looking, tab, None, QUESTION, 6) == [None, handlers.NO_PICTURE]
    assert handlers.on_look(looking, tab, image, " ", 6) == [None, handlers.NO_QUESTION]
    assert "slider" in handlers.on_look(looking, tab, image, QUESTION, 0)[1]
    (tmp_path / "bad.png").write_bytes(b"no picture")
    view, said = handlers.on_look(looking, tab, str(tmp_path / "bad.png"), QUESTION, 6)
    assert view is None
    assert str(tmp_path) not in said  # the name alone
    assert tab.record is None
    assert handlers.on_look(looking, tab, image, QUESTION * 1000, 6)[1] == ""


def test_a_large_picture_has_the_cells_that_it_has_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coupling, "MAX_PIXELS", 64 * 64)
    picture(1, (256, 192)).save(path := str(tmp_path / "large.png"))
    tab = Tab()
    view, _ = handlers.on_look(Looking(EncodedMemory()), tab, path, QUESTION, 24)
    assert tab.record is not None
    assert tab.record.image.size == (74, 55)
    elsewhere = selector.Selector()(path, QUESTION, 0.5)
    assert (view["kept"], view["total"]) == (elsewhere.kept, elsewhere.total) == (24, 48)
    assert view["strips"][0]["grid"] == list(elsewhere.grid)


def test_the_budget_is_the_forms(image: str) -> None:
    """The form opens with 64; "auto" and more than there is are budgets, too."""
    looking, tab = Looking(EncodedMemory()), Tab()
    assert asking.AskForm(None, "").budget == asking.TOKENS == 64
    whole, said = handlers.on_look(looking, tab, image, QUESTION, DEFAULT_BUDGET)
    assert (whole["kept"], said) == (6, "")
    auto, said = handlers.on_look(looking, tab, image, QUESTION, 3, True)
    assert (auto["kept"], said) == (selector.Selector()(image, QUESTION, "auto").kept, "")


def test_a_clip_is_no_picture_to_look_at(image: str) -> None:
    looking, tab = Looking(EncodedMemory()), Tab()
    tab.take_clip(drawn_clip(4))
    for late in (None, image):  # a browser may still send the picture that the clip has replaced
        view, said = handlers.on_look(looking, tab, late, QUESTION, 3)
        assert (view, said) == (None, handlers.OF_CLIPS)
    tab.take(image)
    assert handlers.on_look(looking, tab, None, QUESTION, 3)[1] == handlers.NO_PICTURE


def test_what_was_found_in_the_former_picture_is_not_shown_beside_the_next(image: str) -> None:
    tab = Tab()

    class Overtaken(Looking):
        def view(self, *asked: Any) -> dict[str, Any]:
            assert handlers.on_new_picture(tab) == [*[handlers.NEW_PICTURE] * 2, [], "", None]
            return super().view(*asked)

    assert handlers.on_look(Overtaken(EncodedMemory()), tab, image, QUESTION, 3) == [handlers.gr.skip()] * 2
    assert handlers.on_look(Looking(EncodedMemory()), tab, image, QUESTION, 3)[1] == ""


def test_a_look_that_fails_says_so_instead_of_going_on(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("arr_coc.app.looking.see", failing)
    view, said = handlers.on_look(Looking(EncodedMemory()), Tab(), image, QUESTION, 3)
    assert view is None
    assert said.startswith("That failed (MemoryError)")


@pytest.mark.slow
def test_an_own_guide_looks_in_place_of_the_bundled_one(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the app as it is built by a folder's name: one that learned nothing says something else."""
    monkeypatch.setattr(selector, "load_guide", load_guide)
    save_guide(Guide(), tmp_path)
    app = build_app(guide=tmp_path)
    try:
        view, said = handlers.on_look(app.looking, Tab(), image, QUESTION, 3)
        usual, _ = handlers.on_look(Looking(EncodedMemory()), Tab(), image, QUESTION, 3)
    finally:
        app.models.close()
    assert (said, view["kept"]) == ("", usual["kept"])
    assert view != usual
    with pytest.raises(ValueError, match="has no guide"):
        build_app(guide=tmp_path / "missing")


def test_pictures_share_the_memory_for_encoded_images(image: str) -> None:
    looking, tabs = Looking(EncodedMemory(megapixels=0.5)), [Tab() for _ in range(3)]
    for tab in tabs:
        handlers.on_look(looking, tab, image, QUESTION, 3)
    assert [tab.record is None for tab in tabs] == [True, False, False]  # each counts for 0.25 at least
    tabs[2].release()
    assert tabs[2].record is None
    handlers.on_look(looking, tabs[0], None, QUESTION, 3)
    assert not tabs[0].holds


def test_what_every_tab_shows_first_is_computed_once_and_kept_by_none(image: str) -> None:
    looking = Looking(EncodedMemory())
    view, said = handlers.on_first_look(looking, AppSample(image, QUESTION), 3)
    assert (view["kept"], said) == (3, "")
    assert handlers.on_first_look(looking, AppSample(image, QUESTION), 3)[0] is view


def test_without_a_guide_the_page_says_so(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> Guide:
        raise ValueError("no guide")

    monkeypatch.setattr(selector, "load_guide", missing)
    assert handlers.on_first_look(Looking(EncodedMemory()), AppSample(image, QUESTION), 50) == [
        None,
        "No guide",
    ]


def test_the_end_waits_for_a_look_and_lets_none_begin(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, begun, go = Looking(EncodedMemory()), Event(), Event()

    def unreadable(*_: Any) -> None:
        begun.set()
        go.wait()
        raise ValueError("no picture")

    monkeypatch.setattr("arr_coc.app.looking.see", unreadable)
    thread = Thread(target=handlers.on_look, args=(looking, Tab(), image, QUESTION, 3))
    thread.start()
    assert begun.wait(60)
    assert looking.end()
    go.set()
    assert not looking.end(patience=30)
    thread.join()
    begun.clear()
    late = Thread(target=handlers.on_look, args=(looking, Tab(), image, QUESTION, 3), daemon=True)
    late.start()
    assert not begun.wait(0.2)


def test_an_allocator_in_place_of_a_guide_looks_too(image: str) -> None:
    """Its trained layer finds no coupling, so that the view has no guidance."""
    record = see(image, BUNDLED / "allocator")
    shown = live_view(record, QUESTION, 3)
    assert shown["kept"] == 3
    record.selector.relevance = "trained"
    assert live_view(record, QUESTION, 3)["strips"][0]["guidance"] is None
