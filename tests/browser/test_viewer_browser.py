"""The viewer in a real browser: what is drawn, what it says, by hand and by keys, on screens of all kinds.
Renew the pictures in snapshots/ after a wanted change, then look at them:
    ARR_COC_SNAPSHOTS=renew pytest tests/browser/test_viewer_browser.py -k looks
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from looks import assert_looks, call
from PIL import Image
from traces import CELL, KEPT, SIDE, VERDICTS, allocation, trace

from arr_coc.choose.allocation import Reason
from arr_coc.guide.trust import BADGES, SENTENCES
from arr_coc.modes import MODES
from arr_coc.trace.evidence import Guidance, Spot
from arr_coc.trace.trace import FullAnswer, QuestionWord
from arr_coc.trace.view import look_view, picture_view
from arr_coc.trace.viewer import page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = '<img src=x onerror="document.title=1"> where?'
CANVAS = ".ac-stage"
FLAT = Image.new("RGB", (SIDE * CELL, SIDE * CELL), (250, 250, 250))  # without lines to show through


def mount(page: Page, view: dict[str, Any], detail: str = "full") -> None:
    call(page, f"mount(element, v[0], {{detail: '{detail}', onselect: (c) => (window.chosen = c)}})", view)


def at(page: Page, cell: int, canvas: str = f"{CANVAS} canvas") -> tuple[int, int, int]:
    """The colour in the middle of a cell."""
    row, column = divmod(cell, SIDE)
    r, g, b, _ = page.evaluate(
        "([q, x, y]) => [...document.querySelector(q).getContext('2d').getImageData(x, y, 1, 1).data]",
        [canvas, column * CELL + CELL // 2, row * CELL + CELL // 2],
    )
    return r, g, b


def click_cell(page: Page, cell: int) -> None:
    box = page.locator(CANVAS).bounding_box()
    assert box is not None
    row, column = divmod(cell, SIDE)
    step = box["width"] / SIDE
    page.locator(CANVAS).click(position={"x": (column + 0.5) * step, "y": (row + 0.5) * step})


def values_of(view: dict[str, Any], layer: str) -> np.ndarray:
    data = next(entry["data"] for entry in view["strips"][0]["layers"] if entry["id"] == layer)
    return np.frombuffer(base64.b64decode(data), "<f4")


@pytest.mark.slow
def test_the_verdict_says_what_it_cost(blank: Page) -> None:
    mount(blank, trace().view(), "simple")
    said = blank.locator(".ac-verdict").inner_text()
    for fact in ("Where is red?", "Same answer", "5.3× fewer tokens", "4.0× faster", "12 of 64", "200 ms"):
        assert fact in said
    fills = blank.locator(".ac-cost-ours .ac-bar").nth(1).locator(".ac-fill")
    widths = fills.evaluate_all("all => all.map(e => parseFloat(e.style.width))")
    assert sum(widths) == pytest.approx(25.0)  # 50 of 200 ms, on the axis of both
    mount(blank, trace(full=FullAnswer("right", {"encode": 30.0, "total": 25.0})).view(), "simple")
    assert "Different answer" in blank.locator(".ac-verdict").inner_text()
    assert "2.0× slower" in blank.locator(".ac-verdict").inner_text()


@pytest.mark.slow
def test_what_happened_is_said_plainly(blank: Page) -> None:
    reused = {"prefill": 160.0, "total": 170.0}
    mount(
        blank, trace(read=KEPT + 4, note="it ran otherwise", full=FullAnswer("left", reused)).view(), "simple"
    )
    said = blank.locator(".ac-verdict").inner_text()
    for remark in ("a coarse view of the whole image, 4 tokens", "It ran otherwise", "encoded once for both"):
        assert remark in said
    assert "slower" not in said
    assert "faster" not in said


def test_times_say_what_they_are(blank: Page) -> None:
    coarse = {"gestalt": 100.0, "prefill": 25.0, "total": 125.0}  # the coarse view is its encoding
    full = FullAnswer("left", {"encode": 400.0, "total": 481.0}, {"encode": 0.0, "total": 70.0})
    mount(blank, trace(ms=coarse, full=full, again={"total": 20.0}, machine="cpu, float32").view(), "simple")
    said = blank.locator(".ac-verdict").inner_text()
    for fact in (
        "3.8× faster",
        "coarse view",
        "A further question about this image: 20 ms, from all 70 ms.",
        "Times on cpu, float32.",
    ):
        assert fact in said
    assert "don't compare" not in said


def test_the_same_is_not_the_truth(blank: Page) -> None:
    contenders = trace().probes["contenders"]
    rows = [row | {"true": row["answer"] == "up", "note": None} for row in contenders["rows"]]
    rows[1]["note"] = "reads all 64 tokens in its first 2 layers"
    probes = {"contenders": contenders | {"rows": rows, "right_from": "all tokens", "note": "in mode prune"}}
    mount(blank, trace(true_answers=("up",), probes=probes).view())
    verdict = blank.locator(".ac-verdict").inner_text()
    assert "Same answer" in verdict
    assert verdict.count("Not true") == 2
    assert "Known to be true: up" in verdict
    table = blank.get_by_role("table").filter(has_text="as from all")
    ours, even, _ = table.locator("tbody tr").all()
    assert [icon.get_attribute("aria-label") for icon in ours.locator(".ac-icon").all()] == [
        "as from all tokens",
        "not true",
    ]
    assert even.locator(".ac-icon").last.get_attribute("aria-label") == "true"
    panel = blank.get_by_label("Other ways to choose").inner_text()
    assert "even grid reads all 64 tokens in its first 2 layers" in panel
    assert "in mode prune" in panel


@pytest.mark.slow
def test_a_note_stands_above_the_answer(blank: Page) -> None:
    note = "this picture is unlike those that the model knows"
    for detail in ("simple", "full"):
        mount(blank, trace(note=note, full=FullAnswer("right", {"total": 50.0})).view(), detail)
        warning = blank.locator(".ac-warning")
        assert note in warning.inner_text().lower()
        above, below = warning.bounding_box(), blank.locator(".ac-answer").first.bounding_box()
        assert above is not None
        assert below is not None
        assert above["y"] + above["height"] <= below["y"]
    call(blank, "pair(element, v[0], v[1])", trace().view(), trace(note=note).view())
    assert note in blank.locator(".ac-side-of").nth(1).inner_text().lower()


def test_a_mode_of_ones_own_says_its_remark(blank: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    remark = "Every second token was read."
    monkeypatch.setitem(MODES, "mine", replace(MODES["prune"], name="mine", remark=remark))
    mount(blank, trace(mode="mine").view(), "simple")
    assert blank.locator(".ac-verdict").get_by_text(remark).is_visible()
    monkeypatch.delitem(MODES, "mine")  # a trace of a mode that isn't registered here is drawn all the same
    mount(blank, trace(mode="mine").view(), "simple")
    assert blank.locator(".ac-remark").count() == 0
    assert "Same answer" in blank.locator(".ac-verdict").inner_text()


@pytest.mark.slow
def test_words_of_the_field_are_explained(blank: Page) -> None:
    call(blank, "pair(element, v[0], v[1])", trace(allocation(0)).view(), trace(allocation(1)).view())
    assert_explained(blank, "IoU", "Intersection over union")
    blank.set_viewport_size({"width": 390, "height": 844})
    mount(blank, trace(read=KEPT + 4).view())
    for word, meaning in {
        "saliency": "stands out",
        "particularize": "budget of “auto”",
        "tensions": "0.5 is neutral",
        "coupling": "couples with the question",
        "gestalt": "A coarse view",
        "log-prob": "0 is certain",
    }.items():
        assert_explained(blank, word, meaning)
    blank.locator("input[value=perspectival]").focus()  # a layer to choose says what it shows, too
    assert "stands out" in blank.locator(".ac-tip").inner_text()


def assert_explained(page: Page, word: str, meaning: str) -> None:
    """A word says what it means to the pointer, to the focus and to screen readers, within the screen."""
    place = page.locator("dfn", has_text=word).first
    assert meaning in str(place.get_attribute("aria-description"))
    tip = page.locator(".ac-tip")
    assert tip.count() == 0
    place.hover()
    assert meaning in tip.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.mouse.move(0, 0)
    tip.wait_for(state="detached")
    place.focus()
    assert meaning in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.count() == 0
    place.blur()


def test_closer_does_not_repeat_the_first_screen(blank: Page) -> None:
    mount(blank, trace().view(), "closer")
    assert blank.locator(".ac-verdict").count() == 0
    assert blank.locator("input[value=balanced]").is_checked()
    assert blank.locator(".ac-card").count() == 1


def test_an_answer_is_read_out(blank: Page) -> None:
    mount(blank, trace().view(), "simple")
    line = blank.get_by_role("status")
    assert line.inner_text() == ""  # what a page opens with is not news
    blank.evaluate("v => window.handle.update(v).ready", trace(answer="up", note="it ran otherwise").view())
    blank.wait_for_function("document.querySelector('[role=status]').textContent !== ''")
    assert line.inner_text() == "Answer from 12 tokens: up. From all tokens: left. it ran otherwise"


@pytest.mark.slow
def test_layers_change_the_canvas_and_reach_to_their_highest_value(blank: Page) -> None:
    view = trace(picture=FLAT).view()
    mount(blank, view)
    kept, dropped = (
        view["strips"][0]["keep"][0],
        next(c for c in range(64) if c not in view["strips"][0]["keep"]),
    )
    assert at(blank, kept) == (250, 250, 250)
    assert at(blank, dropped)[0] == pytest.approx(250 + 0.78 * (233 - 250), abs=1)  # mostly paper
    palette = np.frombuffer(base64.b64decode(view["palette"]), np.uint8).reshape(256, 3)
    blank.get_by_text("Relevance", exact=True).click()
    highest = values_of(view, "balanced").max()
    for cell in (0, 9, 63):
        value = min(values_of(view, "balanced")[cell] / highest, 255 / 256)
        assert at(blank, cell) == pytest.approx(tuple(palette[int(256 * value)]), abs=1)
    ticks = [float(tick) for tick in blank.locator(".ac-ticks").inner_text().split()]
    assert ticks == pytest.approx([share * highest for share in (0, 0.25, 0.5, 0.75, 1)], rel=0.05)
    blank.get_by_label("more layers").select_option("texture:green")
    value = min(values_of(view, "texture:green")[9] / values_of(view, "texture:green").max(), 255 / 256)
    assert at(blank, 9) == pytest.approx(tuple(palette[int(256 * value)]), abs=1)
    assert "green" in blank.locator(".ac-readout").inner_text()
    blank.get_by_label("opacity of the layer").fill("0")
    assert at(blank, 9) == (250, 250, 250)


@pytest.mark.slow
def test_a_difference_has_a_sign_and_a_zero(blank: Page) -> None:
    view = trace().view()
    mount(blank, view)
    blank.get_by_label("more layers").select_option("difference")
    blank.get_by_label("layer to take from").select_option("balanced")
    blank.get_by_label("layer taken away").select_option("information")
    assert blank.locator(".ac-ticks").inner_text().split() == ["−1", "−0.5", "0", "0.5", "1"]
    gap = values_of(view, "balanced") - values_of(view, "information")
    assert f"at most {np.abs(gap).max():.2f}" in blank.locator(".ac-readout").inner_text()
    blank.get_by_label("layer taken away").select_option("balanced")
    assert "exactly 0 everywhere" in blank.locator(".ac-readout").inner_text()


def test_without_an_allocation_nothing_differs(blank: Page) -> None:
    record = allocation(kept=64, reason=Reason.ALL)
    everything = {"mode": "full", "full": FullAnswer("left", {"total": 50.0}), "picture": FLAT}
    mount(blank, trace(record, **everything).view())
    said = blank.locator(".ac-verdict").inner_text()
    assert "Nothing was chosen: the stock model" in said
    assert "From all 64 tokens" in said
    blank.get_by_label("more layers").select_option("difference")
    assert "exactly 0 everywhere" in blank.locator(".ac-readout").inner_text()
    assert len({at(blank, cell) for cell in (3, 60)}) == 1
    assert "nothing was chosen" in blank.locator(".ac-reason").inner_text()


@pytest.mark.slow
def test_a_click_opens_the_card_of_a_cell(blank: Page) -> None:
    view = trace().view()
    mount(blank, view)
    balanced = values_of(view, "balanced")
    ranking = sorted(range(64), key=lambda c: -balanced[c])
    kept, dropped = ranking[4], ranking[30]
    click_cell(blank, kept)
    card = blank.locator(".ac-card").inner_text()
    row, column = divmod(kept, SIDE)
    assert f"Row {row + 1}, column {column + 1}" in card
    assert f"x {32 * column}–{32 * column + 32}, y {32 * row}–{32 * row + 32} px" in card
    assert "rank 5 of 64, within the 12 kept" in card
    for layer in ("balanced", "information", "perspectival", "participatory", "texture:blue"):
        assert f"{values_of(view, layer)[kept]:.2f}" in card
    order = sorted(range(64), key=lambda c: -values_of(view, "information")[c])
    assert f"{order.index(kept) + 1} of 64" in card
    assert blank.evaluate("window.chosen") == {"index": kept, "row": row, "column": column}
    click_cell(blank, dropped)
    cut, relevance = balanced[ranking[11]], balanced[dropped]
    assert blank.locator(".ac-reason").inner_text() == (
        f"rank 31: the last one kept was rank 12, its relevance {relevance:.2f}, the cut {cut:.2f}"
    )


def test_keys_alone_reach_everything(blank: Page) -> None:
    view = trace().view()
    mount(blank, view)
    blank.keyboard.press("Tab")
    assert blank.evaluate("document.activeElement.value") == "kept"
    blank.keyboard.press("ArrowRight")
    assert "relevance" in blank.locator(".ac-readout").inner_text()
    for _ in range(9):
        if blank.evaluate("document.activeElement.classList.contains('ac-stage')"):
            break
        blank.keyboard.press("Tab")
    row, column = divmod(view["strips"][0]["order"][0], SIDE)
    blank.keyboard.press("ArrowUp" if row else "ArrowDown")
    blank.keyboard.press("Enter")
    moved = row - 1 if row else 1
    assert blank.evaluate("window.chosen") == {"index": moved * SIDE + column, "row": moved, "column": column}
    assert f"Row {moved + 1}, column {column + 1}" in blank.locator(".ac-card").inner_text()


def test_the_scrub_shows_other_budgets(blank: Page) -> None:
    view = trace().view()
    mount(blank, view)
    ranking = sorted(range(64), key=lambda c: -values_of(view, "balanced")[c])
    fresh = ranking[KEPT]  # the next best
    before = at(blank, fresh)
    slider = blank.get_by_role("slider", name="number of tokens")
    slider.press("End")
    assert at(blank, fresh) != before
    spoken = str(slider.get_attribute("aria-valuetext"))
    assert "64 tokens. Answer from 64: left (as from all tokens)" in spoken
    slider.press("Home")
    assert "Answer from 1: up (another than from all tokens)" in blank.locator(".ac-said").first.inner_text()
    blank.get_by_role("button", name="4 are enough").click()
    assert blank.locator(".ac-big").first.inner_text() == "4"
    blank.get_by_role("button", name="Reset").click()
    assert at(blank, fresh) == before


def test_a_word_shows_its_own_heat(blank: Page) -> None:
    mount(blank, trace().view())
    before = at(blank, 20)
    chip = blank.get_by_role("button", name="red, pull 0.90")
    chip.click()
    assert at(blank, 20) != before
    assert chip.get_attribute("aria-pressed") == "true"
    assert "“red”" in blank.locator(".ac-readout").inner_text()
    assert blank.get_by_role("button", name="is,").count() == 0  # it was not scored
    chip.click()
    assert at(blank, 20) == before


def guided(kept: int = KEPT, **changes: Any) -> dict[str, Any]:
    """The view of a trace with one box that was kept, one that was not, and two words of the guide."""
    record = allocation(kept=kept)
    cells = (int(record.keep[0]), next(c for c in range(SIDE * SIDE) if c not in record.keep))
    places = [(CELL * (c % SIDE), CELL * (c // SIDE)) for c in cells]
    boxes = tuple((x + 2.0, y + 2.0, x + 30.0, y + 30.0) for x, y in places)
    heat = torch.zeros(SIDE, SIDE)
    heat[2, 4] = 0.9
    spots = (Spot("colour", "red", 0.9, (0.3, 0.55), heat), Spot("tree", "tree", 0.2, (0.9, 0.9), heat / 4))
    return trace(record, evidence=boxes, guidance=Guidance(0.9, 0.0, 0.0, spots), **changes).view()


@pytest.mark.slow
def test_every_verdict_has_its_badge(blank: Page) -> None:
    assert VERDICTS.keys() == BADGES.keys() == SENTENCES.keys()
    for says, guidance in VERDICTS.items():
        mount(blank, trace(guidance=guidance).view())
        badge = blank.locator(f".ac-assurance .ac-badge.ac-says-{says}")
        assert badge.inner_text() == BADGES[says]
        call(blank, "look(element, v[0])", look_view(picture_view(FLAT), "Where?", allocation(), guidance))
        assert badge.inner_text() == BADGES[says]


def test_the_evidence_stands_beside_the_choice(blank: Page) -> None:
    mount(blank, guided())
    assert blank.locator(".ac-recall").inner_text().startswith("50% of the evidence kept")
    assert [blank.locator(f".ac-evidence.ac-{kind}").count() for kind in ("hit", "missed")] == [1, 1]
    tokens = blank.get_by_label("number of tokens", exact=True)
    tokens.fill(tokens.get_attribute("max") or "")  # all of them
    assert blank.locator(".ac-recall").inner_text().startswith("100% of the evidence kept")
    assert blank.locator(".ac-evidence.ac-missed").count() == 0
    mount(blank, trace().view())
    assert blank.locator(".ac-recall").count() == 0


@pytest.mark.slow
def test_the_words_that_the_guide_read(blank: Page) -> None:
    mount(blank, guided())
    said = blank.get_by_label("Words on the page", exact=True).inner_text()
    assert "Probably here" in said
    assert "not found" in said
    before, cell = at(blank, 20), blank.get_by_role("button", name="colour → red, likeness 0.90")
    cell.hover()
    assert at(blank, 20) != before
    assert "“colour → red” 0.90" in blank.locator(".ac-readout").inner_text()
    blank.mouse.move(0, 0)
    assert at(blank, 20) == before
    cell.click()
    blank.mouse.move(0, 0)
    assert at(blank, 20) != before
    assert cell.get_attribute("aria-pressed") == "true"
    cell.click()
    blank.mouse.move(0, 0)
    assert at(blank, 20) == before


def test_a_choice_without_an_answer(blank: Page) -> None:
    call(blank, "look(element, v[0])", guided() | {"evidence": []})
    assert "12 of 64 cells kept" in blank.locator("#here").inner_text()
    assert blank.locator(".ac-verdict").count() == 0
    blank.evaluate("view => window.handle.update(view)", guided(20) | {"evidence": []})
    blank.get_by_text("20 of 64 cells kept").first.wait_for()
    assert blank.locator(".arrcoc-live").inner_text().startswith("Probably here.")


def test_contenders_show_what_they_keep(blank: Page) -> None:
    view = trace().view()
    mount(blank, view)
    blank.get_by_role("button", name="even grid").click()
    ours, theirs = set(view["strips"][0]["keep"]), set(range(0, 60, 5))
    iou = len(ours & theirs) / len(ours | theirs)
    assert f"IoU with ours {iou:.2f}" in blank.locator(".ac-readout").inner_text()
    blank.get_by_role("button", name="even grid").click()
    assert blank.locator(".ac-readout").inner_text().startswith("12 of 64 cells kept")
    table = blank.locator(".ac-contenders").locator("..").locator("..").inner_text()
    assert "scope left out: no such attention here" in table


def test_charts_say_their_numbers(blank: Page) -> None:
    mount(blank, trace().view())
    said = " ".join(blank.locator(".ac-chart").all_inner_texts())
    for fact in ("4: the fewest that answer as from all tokens", "area −1.70", "area −0.90", "area −1.40"):
        assert fact in said
    assert blank.locator(".ac-chart .ac-point-right").count() == 3 + 1  # points, and the key
    blank.locator("circle.ac-point-wrong").first.click()
    assert blank.locator(".ac-big").first.inner_text() == "1"


def test_a_pair_prints_the_overlap(blank: Page) -> None:
    a, b = allocation(0), allocation(1)
    call(blank, "pair(element, v[0], v[1], {labels: ['first', 'second']})", trace(a).view(), trace(b).view())
    assert blank.locator(".ac-iou").inner_text() == f"{a.iou(b):.2f}"
    both = int((a.mask() & b.mask()).sum())
    assert f"in both: {both}" in blank.locator(".ac-overlap").inner_text()
    assert blank.locator(CANVAS).count() == 2
    blank.locator(CANVAS).first.hover(position={"x": 2, "y": 2})
    said = blank.locator(".ac-readout").inner_text()
    assert f"first: row 1, column 1 · relevance {a.balanced.flatten()[0]:.2f}" in said
    assert f"second: row 1, column 1 · relevance {b.balanced.flatten()[0]:.2f}" in said


def test_a_pair_of_other_grids_has_no_overlap(blank: Page) -> None:
    other = trace().view()
    other["strips"][0] |= {"grid": [1, SIDE // 2, SIDE * 2]}
    call(blank, "pair(element, v[0], v[1])", trace().view(), other)
    assert "The grids differ" in blank.locator(".arrcoc").inner_text()
    assert blank.locator(".ac-iou").count() == 0
    blank.get_by_text("Relevance", exact=True).click()  # one layer for both
    assert blank.locator(f"{CANVAS}.ac-on-heat").count() == 2


def test_the_history_draws_every_question(blank: Page) -> None:
    views = [trace(question=HOSTILE, words=()).view(), trace().view(), trace().view()]
    call(blank, "history(element, v)", *views)
    assert blank.locator(".ac-chart").count() == 2
    assert blank.locator(".ac-chart").first.locator("circle").count() == 9
    assert HOSTILE in blank.locator(".ac-questions").inner_text()


def test_an_update_keeps_the_layer(blank: Page) -> None:
    mount(blank, trace().view(), "simple")
    blank.get_by_text("Relevance", exact=True).click()
    before = at(blank, 20)
    blank.evaluate("v => window.handle.update(v)", trace(allocation(3)).view())
    assert at(blank, 20) != before
    assert blank.locator("input[value=balanced]").is_checked()
    blank.evaluate("() => window.handle.update(null)")
    assert "Ask a question" in blank.locator(".arrcoc").inner_text()
    blank.evaluate("() => window.handle.update({format: 'other'})")
    assert "not a view that can be drawn" in blank.locator(".arrcoc").inner_text()


def spoiled(value: Any) -> Iterator[Any]:
    """Copies of a JSON value in which one part, at any depth, is something else."""
    for other in (None, HOSTILE, -1, 1e308, True, [], {}, [HOSTILE], {"length": 1e9}):
        yield other
    parts = dict(enumerate(value[:2])) if isinstance(value, list) else value
    for key, part in parts.items() if isinstance(parts, dict) else ():
        for other in spoiled(part):
            copied = copy.deepcopy(value)
            copied[key] = other
            yield copied


@pytest.mark.parametrize("name", ["sweep", "faithfulness", "contenders"])
@pytest.mark.slow
def test_hostile_probes_leave_the_page_whole(blank: Page, name: str) -> None:
    """Of a trace's file that anybody may have made: each view is drawn, and nothing of it runs."""
    view = trace().view()
    probes = view["probes"]
    every = list(spoiled(probes[name]))
    drawn = blank.evaluate(
        """async ([view, name, every]) => {
          const element = document.getElementById("here");
          const wrong = [];
          for (const probe of every) {
            const probes = {...view.probes, [name]: probe, ["__proto__"]: probe, toString: probe};
            const handle = ArrCocViewer.mount(element, {...view, probes}, {detail: "full"});
            await handle.ready;
            const whole = element.querySelector("canvas") && !element.querySelector(".ac-empty, img[src=x]");
            if (!whole) wrong.push(JSON.stringify(probe));
            handle.destroy();
          }
          return [every.length, wrong, document.title];
        }""",
        [view, name, every],
    )
    assert drawn == [len(every), [], ""]


@pytest.mark.parametrize("probes", [None, [], "x", 3, {"sweep": {}}])
def test_what_is_no_probe_is_said_at_most(blank: Page, probes: Any) -> None:
    call(blank, "mount(element, v[0], {detail: 'full'})", trace().view() | {"probes": probes})
    said = "Measured, but not in a form that can be drawn: sweep" in blank.inner_text("#here")
    assert said == isinstance(probes, dict)


def test_the_fewest_and_the_steady_agree_with_the_dots(blank: Page) -> None:
    """An answer that comes, goes and comes back: 2 say the same, but only from 32 on every number does."""
    view = trace().view()
    right = {1: False, 2: True, 4: True, 16: False, 32: True, 64: True}
    view["probes"] = {
        "sweep": {
            "right": "left", "smallest": 32,
            "points": [
                {"kept": k, "answer": "left" if so else "up", "right": so, "logprob": -1.0}
                for k, so in right.items()
            ],
        }
    }  # fmt: skip
    call(blank, "mount(element, v[0], {detail: 'full'})", view)
    text = blank.inner_text("#here")
    assert "2: the fewest that answer as from all tokens" in text
    assert "32: from here on, every number tried does" in text
    assert "32 and more are enough" in text


def test_hostile_text_stays_text(blank: Page) -> None:
    mount(blank, trace(question=HOSTILE, answer=HOSTILE, note=HOSTILE, words=(QuestionWord(HOSTILE),)).view())
    assert blank.locator(".ac-question").inner_text() == HOSTILE
    assert blank.locator(".arrcoc img").count() == 0
    assert blank.title() == ""


@pytest.mark.slow
def test_the_page_opens_from_a_disk(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    views = [trace(question=HOSTILE, words=()).view(), trace(allocation(1)).view()]
    file.write_text(page(views, title="two questions"), encoding="utf-8")
    context = browser.new_context(viewport={"width": 360, "height": 800})
    opened = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: said.append(message.text))
    opened.goto(f"{file.as_uri()}#2,3,4")
    opened.wait_for_selector(CANVAS)
    assert "Row 3, column 4" in opened.locator(".ac-card").inner_text()
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    assert said == []  # the policy let the viewer alone
    assert opened.evaluate("document.documentElement.scrollWidth") == 360
    opened.get_by_label("compare with").select_option("0")
    opened.wait_for_selector(".ac-pair")
    assert opened.evaluate("document.documentElement.scrollWidth") == 360
    opened.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'hit = 1'}))"
    )
    assert opened.evaluate("typeof hit") == "undefined"
    context.close()


@pytest.mark.parametrize("how", ["system", "class", "light"])
def test_dark_follows_the_system_or_the_page(blank: Page, how: str) -> None:
    mount(blank, trace().view(), "simple")
    if how == "system":
        blank.emulate_media(color_scheme="dark")
    if how == "class":
        blank.evaluate("document.body.classList.add('dark')")
    ground, ink = blank.evaluate(
        "() => { const e = getComputedStyle(document.querySelector('.arrcoc'));"
        " return [e.backgroundColor, e.color]; }"
    )
    ground, ink = (sum(map(int, text[4:-1].split(","))) / 3 for text in (ground, ink))
    assert (ground < 60 and ink > 200) if how != "light" else (ground > 240 and ink < 60)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["kept", "balanced", "difference", "pair"])
def test_it_looks_as_it_did(blank: Page, what: str) -> None:
    blank.set_viewport_size({"width": 560, "height": 900})
    if what == "pair":
        call(blank, "pair(element, v[0], v[1])", trace(allocation(0)).view(), trace(allocation(1)).view())
    else:
        mount(blank, trace().view())
    if what == "difference":
        blank.get_by_label("more layers").select_option(what)
        blank.get_by_label("layer to take from").select_option("information")
        blank.get_by_label("layer taken away").select_option("balanced")
    elif what == "balanced":
        blank.get_by_text("Relevance", exact=True).click()
        blank.get_by_label("Grid").check()
    blank.mouse.move(0, 0)
    assert_looks(blank.locator(CANVAS).first, what)
