"""Interfaces rendered by a browser: labels, values, switches, prices and cards are told by the DOM alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

from arr_coc_lab.world.browser.documents import DocumentLook, Window, window_of
from arr_coc_lab.world.browser.facts import INTERFACE, MAX_QUESTIONS, Facts, inquire
from arr_coc_lab.world.browser.interfaces import BORROWED, authors, has_ink, render_interface

FILLER = (
    "This screen tells how the kitchen has done since morning, with notes for whoever closes tonight. " * 6
)
SCREEN = """<html style="scroll-behavior:smooth"><body style="font:16px sans-serif;margin:20px">
<p style="color:#fff">Phantom print that nobody reads</p>
<div class="tile"><div class="muted">Open orders</div><div style="font-size:30px">1,284</div></div>
<div class="tile"><div style="font-size:30px">37%</div><div class="muted">Bounce rate</div></div>
<p><span>Shipped:</span> <b>Tuesday</b></p>
<p class="brand"><b>Nova</b><span> Panel</span></p>
<i class="material-icons">shopping_cart</i>
<div><h4>Walnut desk</h4><p>Oiled by hand, two drawers</p><p>$480.00</p><a href="#">Add to basket</a></div>
<form>
  <label for="mail">Email address</label> <input id="mail" value="ada@example.org"><br>
  <label><input type="checkbox" checked> Weekly digest</label><br>
  <label for="dark">Dark mode</label> <input id="dark" type="checkbox" style="display:none"><br>
  <label for="size">Page size</label> <select id="size"><option>A5<option selected>A4</select>
</form>
<button>Save changes</button>
<h3>Pantry</h3><ul><li>Barley</li><li>Cumin seeds</li><li>Dried figs</li></ul>
<div style="display:flex"><a class="tab">Soups</a><a class="tab">Salads</a><a class="tab">Sweets</a></div>
<div style="opacity:0"><div>Hidden label</div><div>55</div></div>
<p>Привет мир</p><p>FILLER</p></body></html>""".replace("FILLER", FILLER)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("pages")
    for author in ("kitchen", "garden"):
        (root / author / "deep").mkdir(parents=True)
        (root / author / "screen.html").write_text(SCREEN.replace("1,284", str(len(author) * 111)))
        (root / author / "deep" / "other.html").write_text(SCREEN.replace("Bounce rate", f"Rate of {author}"))
    (root / "kitchen" / "node_modules").mkdir()
    (root / "kitchen" / "node_modules" / "theirs.html").write_text(SCREEN)
    (root / "kitchen" / "empty.html").write_text("<p>nothing</p>")
    (root / "kitchen" / "folder.html").mkdir()
    (root / "kitchen" / "lost.html").symlink_to(root / "nowhere.html")
    return root


@pytest.fixture(scope="module")
def facts(chromium, folder):
    look = DocumentLook(700, 900, 1.0, "")
    window = window_of(chromium, look.scale)
    window.open(folder / "kitchen" / "screen.html", look, folder)
    rng = random.Random(0)
    rng.choice = lambda options: options[0]  # the top of the page
    return window.scroll(rng, look, interface=True)


def texts(pairs):
    return {label.plain: value.plain for label, value in pairs}


def test_labels_and_values_stand_together_whichever_comes_first(facts):
    pairs = texts(facts.pairs)
    assert pairs["Open orders"] == "777"
    assert pairs["Bounce rate"] == "37%"
    assert pairs["Shipped:"] == "Tuesday"


def test_a_name_in_two_styles_and_what_is_not_visible_are_no_pairs(facts):
    assert not {"Nova", "Panel", "Hidden label"} & set(texts(facts.pairs))


def test_names_of_icons_and_other_scripts_are_no_words(facts):
    words = {word.text for word in facts.words}
    assert "Tuesday" in words
    assert not {"shopping_cart", "Привет"} & words


def test_a_card_has_its_price(facts):
    assert texts(facts.prices) == {"Walnut desk": "$480.00"}
    assert "Oiled by hand" in texts(facts.cards)["Walnut desk"]


def test_controls_with_their_state_and_their_box_where_they_are_drawn(facts):
    controls = {control.label.plain: control for control in facts.controls}
    assert {name: control.state for name, control in controls.items()} == {
        "Email address": "ada@example.org",
        "Weekly digest": "on",
        "Dark mode": "off",
        "Page size": "A4",
    }
    assert [name for name, control in controls.items() if control.toggle] == ["Weekly digest", "Dark mode"]
    assert controls["Dark mode"].box is None
    x0, y0, x1, y1 = controls["Email address"].box
    assert x1 - x0 > 60
    assert y1 - y0 > 10


def test_buttons_and_links(facts):
    links = {"Add to basket", "Soups", "Salads", "Sweets"}
    assert {button.plain for button in facts.buttons} == {"Save changes", *links}


def test_lists_with_their_heading_and_direction(facts):
    lists = {tuple(item.plain for item in each.items): each for each in facts.lists}
    pantry = lists["Barley", "Cumin seeds", "Dried figs"]
    assert pantry.label.plain == "Pantry"
    assert not pantry.across
    tabs = lists["Soups", "Salads", "Sweets"]
    assert tabs.across


def test_places_in_a_list_are_asked_for_with_both_items(facts):
    asked = {}
    for seed in range(40):
        for question in inquire(random.Random(seed), facts, (), {"order": 2, "count": 1}):
            asked.setdefault(question.kind, []).append(question)
    for question in asked["count"]:
        assert (question.answer, len(question.evidence)) == ("3", 4)
    items = {item.plain: item.boxes for each in facts.lists for item in each.items}
    for question in asked["position"]:
        assert items[question.answer] == question.evidence[-1:]
        if "second" in question.text:
            assert question.answer == "Cumin seeds"
        elif "left" in question.text:
            assert question.answer == "Soups"
            assert question.evidence[:1] == items["Salads"]
    assert {"Barley", "Dried figs", "Soups", "Sweets"} <= {question.answer for question in asked["position"]}


def test_questions_hold_their_answers(facts):
    kinds = {}
    for seed in range(24):
        questions = inquire(random.Random(seed), facts, ("Elsewhere",), INTERFACE)
        assert len(questions) <= MAX_QUESTIONS
        for question in questions:
            kinds.setdefault(question.kind, []).append(question)
    assert kinds.keys() >= {"value", "switch", "price", "card", "word", "unanswerable", "global"}
    assert all(question.evidence for question in kinds["switch"] + kinds["price"] + kinds["value"])
    assert {question.answer for question in kinds["price"]} == {"$480.00"}


def test_documents_are_asked_as_before(facts):
    """Interfaces have rules of their own; what is asked of documentation does not follow from them."""
    plain = Facts(*(getattr(facts, name) for name in list(Facts.__dataclass_fields__)[:7]))
    for seed in range(4):
        assert inquire(random.Random(seed), plain, ()) == inquire(random.Random(seed), facts, ())


def test_authors_are_the_folders_in_a_folder(folder, tmp_path):
    shelf = authors(folder)
    assert set(shelf) == {"kitchen", "garden"}
    assert [path.name for path in shelf["kitchen"]] == ["other.html", "screen.html"]
    assert not BORROWED & {part for paths in shelf.values() for path in paths for part in path.parts}
    (tmp_path / "page.html").write_text(SCREEN)
    assert list(authors(tmp_path)) == [""]


def test_a_folder_without_pages_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no \.html file"):
        authors(tmp_path)
    with pytest.raises(ValueError, match="is no folder"):
        authors(tmp_path / "elsewhere")


@pytest.mark.slow
def test_same_seed_same_view(chromium, folder):
    one, again = (render_interface(chromium, 5, "train", folder) for _ in range(2))
    assert (one.questions, one.words, one.source) == (again.questions, again.words, again.source)
    assert np.array_equal(np.asarray(one.image), np.asarray(again.image))
    assert one.type == "interface"
    assert one.source.startswith(("kitchen/", "garden/"))
    width, height = one.image.size
    assert all(
        0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
        for question in one.questions
        for x0, y0, x1, y1 in question.evidence
    )
    others = {render_interface(chromium, seed, "train", folder).image.size for seed in range(6)}
    assert len(others) > 2


@pytest.mark.slow
def test_boxes_are_where_the_picture_has_print(chromium, folder):
    """Also where the page scrolls smoothly, and white print on white is neither word nor evidence."""
    for seed in range(8):
        page = render_interface(chromium, seed, "train", folder)
        grey = np.asarray(page.image.convert("L"), dtype=np.float32)
        boxes = [word.box for word in page.words]
        boxes += [box for question in page.questions for box in question.evidence]
        assert all(has_ink(grey, box) for box in boxes)


def test_a_box_has_ink_where_its_grey_values_differ():
    grey = np.full((40, 60), 250, dtype=np.float32)
    assert not has_ink(grey, (5, 5, 30, 20))
    grey[10:14, 8:20] = 30
    assert has_ink(grey, (5, 5, 30, 20))
    assert not has_ink(grey, (70, 5, 90, 20))


def test_far_sections_are_laid_out_at_once(chromium, tmp_path):
    """A page whose sections wait until they come near is as high as one whose sections don't."""
    rows = "".join(f"<section><p>row {i}</p><p>more of it</p></section>" for i in range(60))
    lazy = "<style>section{content-visibility:auto;contain-intrinsic-size:1px 900px}</style>"
    heights = []
    for name, style in (("lazy", lazy), ("plain", "")):
        (tmp_path / f"{name}.html").write_text(f"<html><body>{style}{rows}</body></html>")
        look = DocumentLook(600, 500, 1.0, "")
        window = window_of(chromium, look.scale)
        window.open(tmp_path / f"{name}.html", look, tmp_path)
        heights.append(window.page.evaluate("document.documentElement.scrollHeight"))
    assert heights[0] == heights[1]


def test_what_moves_is_measured_at_its_end(chromium, tmp_path):
    moving = """<style>@keyframes arrive { from { margin-left: 0 } to { margin-left: 300px } }
    p { animation: arrive 60s 5s infinite } body { transition: padding-top 60s }</style>"""
    page = tmp_path / "moving.html"
    page.write_text(f"<html><body>{moving}<p>Arrived</p></body></html>")
    look = DocumentLook(700, 400, 1.0, "body{margin:0;padding-top:100px}")
    window = window_of(chromium, look.scale)
    window.open(page, look, tmp_path)
    (word,) = window.scroll(random.Random(0), look).words
    assert word.box[:2] == pytest.approx((300, 100), abs=2)


@pytest.mark.slow
def test_a_folder_with_nothing_to_ask_is_refused(chromium, tmp_path):
    (tmp_path / "page.html").write_text("<p>" + "&nbsp;" * 400 + "</p>")
    with pytest.raises(RuntimeError, match="has enough to ask"):
        render_interface(chromium, 0, "train", tmp_path)


@pytest.mark.slow
def test_a_view_that_does_not_load_is_passed_over(chromium, folder, monkeypatch):
    """The same seed goes on with another view; the one that hangs is noted, and not opened again."""
    opened, open_view = [], Window.open

    def broken(window, path, look, inside):
        opened.append(path)
        if path.parent == opened[0].parent:
            raise chromium.error("Timeout 20000ms exceeded")
        open_view(window, path, look, inside)

    monkeypatch.setattr(Window, "open", broken)
    page = render_interface(chromium, 5, "train", folder)
    assert page.source != opened[0].relative_to(folder).as_posix()
    assert chromium.unloadable[opened[0]] == "Timeout 20000ms exceeded"
    assert opened.count(opened[0]) == 1
    chromium.unloadable.clear()
