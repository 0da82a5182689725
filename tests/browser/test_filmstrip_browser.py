"""Clips in the viewer, in a real browser: filmstrip, budget over time, the chosen frame.
Renew the pictures in snapshots/ after a wanted change, then look at them:
    ARR_COC_SNAPSHOTS=renew pytest tests/browser/test_filmstrip_browser.py -k looks
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from looks import assert_looks, call
from traces import VERDICTS, trace

from arr_coc.guide.trust import BADGES
from arr_coc.trace.evidence import Guidance, Spot
from arr_coc.trace.viewer import page
from clip_models import clip_strip, clip_trace, image_strip

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FRAMES, SLIDER, STAGE = ".ac-film-frame", "frame of the clip", ".ac-stage"
HOSTILE = '<img src=x onerror="document.title=1"> when?'


def mount(page: Page, view: dict[str, Any], detail: str = "full") -> None:
    call(page, f"mount(element, v[0], {{detail: '{detail}', onselect: (c) => (window.chosen = c)}})", view)
    page.wait_for_selector(f"{STAGE} canvas")
    painted(page)


def painted(page: Page) -> None:
    """All small pictures in sight are painted."""
    page.wait_for_function(
        "() => { const box = (e) => e.getBoundingClientRect(), row = document.querySelector('.ac-film');"
        " return [...document.querySelectorAll('.ac-film-picture canvas')].every(c =>"
        " !row || box(c).left > box(row).right || box(c).right < box(row).left ||"
        " c.getContext('2d').getImageData(c.width / 2, c.height / 2, 1, 1).data[3] === 255); }"
    )


def title(page: Page) -> str:
    return page.locator(".ac-frame-title").inner_text().replace("\n", " ")


@pytest.mark.slow
def test_it_opens_at_the_frame_with_most(blank: Page) -> None:
    made = clip_trace()
    mount(blank, made.view(), "simple")
    budgets = made.strips[0].budgets
    best = budgets.index(max(budgets))
    assert title(blank).startswith(f"{best}.0 to {best}.5 s step {best + 1} of 6, read at 64 × 48 px")
    assert blank.locator(f"{FRAMES}[aria-current]").get_attribute("aria-label") == (
        f"step {best + 1} of 6, {best}.0 s, {budgets[best]} of 48 cells kept"
    )
    facts = [text.split("\n") for text in blank.locator(FRAMES).all_inner_texts()]
    assert facts == [[f"{i}.0 s", str(n or "–")] for i, n in enumerate(budgets)]
    assert blank.locator(".ac-readout").inner_text().startswith(f"{budgets[best]} of 48 cells kept")
    assert "When is the disc red?" in blank.locator(".ac-verdict").inner_text()
    assert "30 of 288" in blank.locator(".ac-verdict").inner_text()


@pytest.mark.slow
def test_keys_alone_move_through_time(blank: Page) -> None:
    mount(blank, clip_trace().view(), "simple")
    slider = blank.get_by_label(SLIDER)
    slider.focus()
    blank.keyboard.press("Home")
    assert title(blank).startswith("0.0 to 0.5 s step 1 of 6")
    for _ in range(3):
        blank.keyboard.press("ArrowRight")
    blank.wait_for_function("document.querySelector('.ac-frame-title').innerText.startsWith('3.0')")
    assert "after a cut" in title(blank)
    assert str(slider.get_attribute("aria-valuetext")).startswith("step 4 of 6, 3.0 s, ")
    assert "after a cut" in str(slider.get_attribute("aria-valuetext"))
    assert blank.evaluate("document.activeElement.getAttribute('aria-label')") == SLIDER
    blank.keyboard.press("End")
    blank.wait_for_function("document.querySelector('.ac-frame-title').innerText.startsWith('5.0')")
    assert blank.locator(FRAMES).nth(5).get_attribute("aria-current") == "true"
    # The small pictures are no stops on the way; the canvas is one.
    for _ in range(9):
        blank.keyboard.press("Tab")
        if blank.evaluate("document.activeElement.classList.contains('ac-stage')"):
            break
    assert blank.evaluate("document.activeElement.classList.contains('ac-stage')")


@pytest.mark.slow
def test_a_click_chooses_a_frame(blank: Page) -> None:
    mount(blank, clip_trace().view(), "simple")
    blank.locator(FRAMES).nth(1).click()
    blank.wait_for_function("document.querySelector('.ac-frame-title').innerText.startsWith('1.0')")
    assert blank.get_by_label(SLIDER).input_value() == "1"
    curve = blank.locator(".ac-curve").bounding_box()
    assert curve is not None
    blank.locator(".ac-curve").click(position={"x": curve["width"] * 0.79, "y": 20})
    blank.wait_for_function("document.querySelector('.ac-frame-title').innerText.startsWith('4.0')")


def test_cuts_stand_on_the_curve(blank: Page) -> None:
    mount(blank, clip_trace().view(), "simple")
    label = str(blank.locator(".ac-curve").get_attribute("aria-label"))
    assert label.endswith("cuts at 3.0 s")
    cuts = blank.locator(".ac-curve .ac-cut")
    assert cuts.count() == 1  # the first frame begins a scene, but no cut is before it
    assert float(str(cuts.get_attribute("x1"))) == pytest.approx(60)
    assert blank.locator(f"{FRAMES}.ac-after-cut").count() == 1
    mount(blank, clip_trace(dataclasses.replace(clip_strip(), cuts=(0,))).view(), "simple")
    assert "cut" not in blank.locator(".ac-filmstrip").inner_text()


@pytest.mark.slow
def test_the_layer_stays_from_frame_to_frame(blank: Page) -> None:
    made = clip_trace()
    mount(blank, made.view())
    before = blank.locator(FRAMES).first.screenshot()
    blank.get_by_text("Relevance", exact=True).click()
    blank.get_by_label(SLIDER).fill("2")
    blank.wait_for_function("document.querySelector('.ac-frame-title').innerText.startsWith('2.0')")
    assert blank.locator("input[value=balanced]").is_checked()
    mean = made.strips[0].allocation.balanced[2].mean()
    assert f"mean {mean:.2f}" in blank.locator(".ac-readout").inner_text()
    assert blank.locator(FRAMES).first.screenshot() != before  # the small pictures follow


def test_the_card_of_a_cell_ranks_over_the_whole_clip(blank: Page) -> None:
    made = clip_trace()
    record = made.strips[0].allocation
    mount(blank, made.view())
    step, rest = divmod(int(record.order[0]), 48)
    row, column = divmod(rest, 8)
    blank.get_by_label(SLIDER).fill(str(step))
    blank.wait_for_function(f"document.querySelector('.ac-frame-title').innerText.startsWith('{step}.0')")
    box = blank.locator(STAGE).bounding_box()
    assert box is not None
    at = {"x": (column + 0.5) * box["width"] / 8, "y": (row + 0.5) * box["height"] / 6}
    blank.locator(STAGE).click(position=at)
    card = blank.locator(".ac-card").inner_text()
    assert f"Row {row + 1}, column {column + 1}" in card
    assert "rank 1 of 288, within the 30 kept" in card
    assert "1 of 288" in card
    assert "null" not in card
    assert blank.evaluate("window.chosen") == {"index": rest, "row": row, "column": column, "step": step}


@pytest.mark.slow
def test_images_stand_beside_clips(blank: Page) -> None:
    mount(blank, clip_trace(image_strip(), clip_strip()).view(), "simple")
    assert blank.get_by_label("Clip 2").is_checked()
    blank.get_by_text("Image 1").click()
    blank.wait_for_function("document.querySelector('.ac-filmstrip') === null")
    assert blank.locator(".ac-frame-title").count() == 0
    blank.wait_for_function("document.querySelector('.ac-readout')?.innerText.startsWith('12 of 48')")
    blank.get_by_text("Clip 2").click()
    blank.wait_for_selector(".ac-filmstrip")


@pytest.mark.slow
def test_what_the_guide_said(blank: Page) -> None:
    spots = (
        Spot("red", "crimson", 0.9, (0.25, 0.5), torch.zeros(0)),
        Spot("disc", "disc", 0.2, (0.5, 0.5), torch.zeros(0)),
    )
    mount(blank, clip_trace(dataclasses.replace(clip_strip(), guidance=Guidance(0.9, 0, 0, spots))).view())
    panel = blank.get_by_label("Words in the clip", exact=True).inner_text()
    for fact in (
        "Probably here",
        "the clip probably holds what is asked for",
        "red → crimson",
        "0.90",
        "not found",
    ):
        assert fact in panel
    nothing = dataclasses.replace(clip_strip(), guidance=Guidance(0.0, 0, 0, spots[1:]))
    mount(blank, clip_trace(nothing).view())
    assert "No word recognised" in blank.get_by_label("Words in the clip", exact=True).inner_text()


@pytest.mark.slow
def test_every_verdict_on_a_clip_has_its_badge(blank: Page) -> None:
    for says, guidance in VERDICTS.items():
        spots = tuple(dataclasses.replace(spot, heat=torch.zeros(0)) for spot in guidance.spots)
        guidance = dataclasses.replace(guidance, spots=spots)
        mount(blank, clip_trace(dataclasses.replace(clip_strip(), guidance=guidance)).view())
        badge = blank.locator(f".ac-assurance .ac-badge.ac-says-{says}")
        assert badge.inner_text() == BADGES[says].replace("picture", "clip")


@pytest.mark.slow
def test_one_step_and_many(blank: Page) -> None:
    mount(blank, clip_trace(clip_strip(1, 5)).view(), "simple")
    assert title(blank).startswith("0.0 to 0.5 s step 1 of 1")
    mount(blank, clip_trace(clip_strip(60, 90)).view(), "simple")
    assert blank.locator(FRAMES).count() == 60
    current = blank.locator(f"{FRAMES}[aria-current]")
    row, frame = blank.locator(".ac-film").bounding_box(), current.bounding_box()
    assert row is not None
    assert frame is not None
    assert row["x"] <= frame["x"] <= row["x"] + row["width"]  # the strip has scrolled to it
    assert blank.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_an_update_goes_from_an_image_to_a_clip_and_back(blank: Page) -> None:
    call(blank, "mount(element, v[0])", trace().view())
    blank.evaluate("v => window.handle.update(v)", clip_trace().view())
    blank.wait_for_selector(".ac-filmstrip")
    blank.locator(FRAMES).nth(1).click()
    blank.wait_for_function("document.querySelector('.ac-frame-title').innerText.startsWith('1.0')")
    blank.evaluate("v => window.handle.update(v)", clip_trace().view())  # the same, sent once more
    blank.wait_for_function("document.querySelector('.ac-frame-title')?.innerText.startsWith('1.0')")
    blank.evaluate("v => window.handle.update(v)", trace().view())
    blank.wait_for_function("document.querySelector('.ac-filmstrip') === null")
    assert "Where is red?" in blank.locator(".ac-verdict").inner_text()


def test_what_compares_images_refuses_clips(blank: Page) -> None:
    call(blank, "pair(element, v[0], v[1])", trace().view(), clip_trace().view())
    assert "not a view that can be drawn" in blank.locator(".arrcoc").inner_text()


@pytest.mark.slow
def test_the_page_opens_from_a_disk(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    views = [clip_trace(question=HOSTILE).view(), trace().view(), clip_trace(image_strip()).view()]
    file.write_text(page(views), encoding="utf-8")
    context = browser.new_context(viewport={"width": 380, "height": 800}, color_scheme="dark")
    opened = context.new_page()
    requests: list[str] = []
    messages: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.goto(f"{file.as_uri()}#1,3,4,5")
    opened.wait_for_selector(STAGE)
    assert opened.locator(".ac-frame-title").inner_text().startswith("4.0 to 4.5 s")
    assert not [url for url in requests if not url.startswith(("file:", "data:"))]
    assert opened.evaluate("document.documentElement.scrollWidth") == 380
    assert opened.locator(".ac-question").first.inner_text() == HOSTILE
    assert opened.locator(".arrcoc img").count() == 0
    assert not opened.get_by_label("compare with").is_visible()
    opened.get_by_role("button", name="Where is red?").click()
    opened.wait_for_selector(".ac-filmstrip", state="detached")
    assert opened.locator("select[aria-label='compare with'] option").count() == 3
    assert messages == []  # the policy let the viewer alone
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_filmstrip_looks_as_it_did(blank: Page, scheme: str) -> None:
    blank.emulate_media(color_scheme=scheme)
    blank.set_viewport_size({"width": 560, "height": 900})
    mount(blank, clip_trace(clip_strip(9, 60)).view(), "closer")  # at the top, whatever the font
    blank.get_by_text("Kept", exact=True).first.click()
    blank.get_by_label(SLIDER).fill("3")
    blank.wait_for_function("document.querySelector('.ac-frame-title').innerText.startsWith('3.0')")
    blank.mouse.move(0, 0)
    blank.evaluate("document.activeElement.blur()")
    hidden = ".ac-frame-facts, .ac-times-below, .ac-filmstrip .ac-key { visibility: hidden; }"  # fonts differ
    blank.add_style_tag(content=hidden)
    painted(blank)
    assert_looks(blank.locator(".ac-filmstrip"), f"filmstrip-{scheme}")
