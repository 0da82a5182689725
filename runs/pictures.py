"""Draw every picture of the documentation that shows the product, as it is today; and the pages that are shown there.

    python runs/pictures.py           docs/first.png, look.png, app.png, microscope.png, and in shown.json what they show
    python runs/pictures.py --try     docs/try.json alone: what docs/try.md shows, no browser
    python runs/pictures.py --pages   the app's samples anew: runs/pictures/*.html and drawn scenes -> src/arr_coc/app/pictures,
                                      docs/order.png

`tests/runs/test_runs_pictures.py` compares what is shown with what the product does. The pages are written by hand, so
that a stranger recognises them and no page type of `arr_coc_lab.world` made them: the guide was taught on none of them.
The system's Chromium lays them out and says where the marked evidence stands, and photographs the app. Machines differ
in their fonts (here: Inter), so the pages are committed. Cost: a minute or two.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw

from arr_coc.app.samples import LISTED, PICTURES, READ_BY_BUNDLED, SAMPLE, AppSample, picture_samples
from arr_coc.choose.allocation import Allocation
from arr_coc.data.record import Box
from arr_coc.relevance import sums
from arr_coc.selector import Selector
from arr_coc.trace.evidence import likely_units
from arr_coc.trace.picture import DPI, TITLE, draw_panel, font, kept_panel, panel_pixels, truth_of, wrap
from arr_coc.trace.view import look_view, picture_view
from arr_coc.trace.viewer import assets
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser.chromium import NAMES, Chromium
from arr_coc_lab.world.odd import draw_odd_page
from arr_coc_lab.world.street import draw_street

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from arr_coc.app.screen import App

PAGES = Path(__file__).parent / "pictures"
DOCS = Path(__file__).parents[1] / "docs"
GROUPS = {
    "One fact of a page": [
        ("order", "When will the parcel arrive?"),
        ("invoice", "Who is the seller?"),
        ("settings", "Is Bluetooth on?"),
    ],
    "Three kinds of question": [
        ("invoice", "What is the total?"),
        ("odd", "Which one is different?"),
        ("invoice", "Give me an overview."),
    ],
    "Pictures with little print": [
        ("street", "Where is the museum?"),
        ("street", "What is unusual in this image?"),
        ("coffee", "What colour is the coffee?"),
    ],
    READ_BY_BUNDLED: [("shapes", "How many rings are there?")],
}
"""The app's samples as it shows them: a picture and what is asked. It opens with the first."""
WRITTEN = ("order", "invoice", "settings")
"""Pictures that are laid out from HTML."""
DRAWN = {
    "odd": lambda: draw_odd_page(0, (1024, 768), "test", "colour"),
    "street": lambda: draw_street(2, (1024, 768), "test"),
    "shapes": lambda: draw_page(5, (1024, 768), "test"),
}
"""Pictures that the lab draws. The last, coffee.jpg, is a photograph by Rachel Michetti, CC0, from scikit-image."""
LABELLED = {
    "Which one is different?": ("the yellow cross", [[558, 450, 618, 510]]),
    "Where is the museum?": ("in the yellow house", [[630, 394, 731, 423]]),
    "What is unusual in this image?": ("nothing", []),
    "What colour is the coffee?": ("brown", [[325, 160, 560, 320]]),
}
"""Answer and evidence of questions that nothing else knows."""
COLOURS = 128
"""Of a palette: print on plain paper has few."""
BUDGET = 64
GAP, CAPTION = 0.22, 0.36
"""Inches between the pictures of the figure, and of the question above each."""


def draw() -> None:
    """Render every picture but the photograph, and list the samples with their evidence."""
    known: dict[str, tuple[str, list]] = dict(LABELLED)
    PICTURES.mkdir(exist_ok=True)
    with Chromium() as chromium:
        for name in WRITTEN:
            html, size, questions = read_page(name)
            shot = chromium.render(html, *size)
            for one in questions:
                boxes = [list(box) for piece in one["pieces"] for box in shot.pieces[piece]]
                known[one["question"]] = one["answer"], boxes
            page = Image.open(io.BytesIO(shot.png)).convert("RGB")
            paletted(page).save(PICTURES / f"{name}.png", optimize=True)
            if name == FIRST[0]:
                page.save(DOCS / f"{name}.png", optimize=True)
    for name, make in DRAWN.items():
        page = make()
        known = {one.text: (one.answer, list(map(list, one.evidence))) for one in page.questions} | known
        paletted(page.image).save(PICTURES / f"{name}.png", optimize=True)
    listed = [
        {"group": group, "file": picture_file(name), "question": text, "answer": known[text][0], "evidence": known[text][1]}
        for group, asked in GROUPS.items()
        for name, text in asked
    ]  # fmt: skip
    lines = ",\n".join(" " + json.dumps(one, ensure_ascii=False) for one in listed)
    (PICTURES / LISTED).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def picture_file(name: str) -> str:
    """The file of a picture in the app."""
    return f"{name}.{'png' if name in (*WRITTEN, *DRAWN) else 'jpg'}"


def read_page(name: str) -> tuple[str, tuple[int, int], list[dict]]:
    """A page: its HTML, its size in px, and its questions, whose evidence are numbers of marked pieces."""
    html = (PAGES / f"{name}.html").read_text(encoding="utf-8")
    width, height = (int(re.search(rf'data-{side}="(\d+)"', html)[1]) for side in ("width", "height"))
    written = re.search(r'<script type="application/json">(.*?)</script>', html, re.S)[1]
    return html, (width, height), json.loads(written)


def paletted(image: Image.Image) -> Image.Image:
    """The image as a small file."""
    return image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen in one picture.

    Attributes:
        image: the picture, at any size.
        allocation: the record; T must be 1.
        question: for which it was chosen.
        evidence: boxes (x0, y0, x1, y1) in px of the image that show the answer, outlined.
    """

    image: Image.Image
    allocation: Allocation
    question: str
    evidence: Sequence[Box] = ()


def draw_gallery(choices: Sequence[Choice], columns: int = 2, width: float = 11.0) -> Image.Image:
    """Draw choices in rows, the pictures of a row as high as each other.

    Args:
        choices: one or more.
        columns: how many pictures stand in a row.
        width: of the whole, in inches at 150 px.

    Returns:
        An RGB image.

    Raises:
        ValueError: there is no choice, a record is of more than one frame, or a box has no inside.
    """
    if not choices:
        raise ValueError("a gallery needs at least one choice")
    rows = [choices[i : i + columns] for i in range(0, len(choices), columns)]
    heights = [
        (width - GAP * (len(row) + 1)) / sum(one.image.width / one.image.height for one in row)
        for row in rows
    ]
    height = sum(heights) + (CAPTION + GAP * 0.5) * len(rows) + GAP * 0.5
    sheet = Image.new("RGB", (round(width * DPI), round(height * DPI)), "white")
    y = 0.0
    for row, high in zip(rows, heights, strict=True):
        y, x = y + CAPTION, GAP
        for one in row:
            wide = high * one.image.width / one.image.height
            draw_choice(sheet, one, x, y, wide, high)
            x += wide + GAP
        y += high + GAP * 0.5
    return sheet


def draw_choice(sheet: Image.Image, one: Choice, x: float, y: float, wide: float, high: float) -> None:
    """Draw one choice with its upper left corner at (x, y), in inches."""
    base = panel_pixels(one.image, one.allocation, box=(wide, high))
    panel = kept_panel(base, one.allocation, truth_of(one.image, one.allocation, one.evidence, None))
    (title,) = wrap(one.question, "bold", TITLE, wide * DPI, 1)
    draw_panel(sheet, replace(panel, title=title, note=""), x, y)


GALLERY = ("settings", "odd", "invoice", "street")
"""Pictures that the figure shows beside each other."""


def samples() -> list[AppSample]:
    """The first sample of each picture of the gallery."""
    firsts = {Path(str(sample.image)).stem: sample for sample in reversed(picture_samples())}
    return [firsts[name] for name in GALLERY]


def draw_look(selector: Selector) -> list[Choice]:
    """Draw what the guide keeps for the first question about each picture."""
    choices = [choice(selector, sample) for sample in samples()]
    draw_gallery(choices, columns=2).save(DOCS / "look.png", optimize=True)
    return choices


FIRST = ("order", 0, 64)
"""The page of the README's first picture, the number of its question and the budget."""
INK, QUIET = (23, 23, 28), (96, 104, 114)


def first_choice(selector: Selector) -> Choice:
    """What the guide keeps of the page of the README's first picture."""
    name, number, budget = FIRST
    page, question = Image.open(DOCS / f"{name}.png").convert("RGB"), read_page(name)[2][number]["question"]
    return Choice(page, selector(page, question, budget=budget), question)


def draw_first(page: Page, one: Choice) -> None:
    """Draw the README's first picture: the page as the app's viewer shows it, under its question."""
    units = likely_units(one.image, one.allocation)
    view = look_view(picture_view(one.image), one.question, one.allocation, None, units)
    script, style = assets()
    page.set_viewport_size({"width": one.image.width + 40, "height": one.image.height + 200})
    page.set_content("<!doctype html><body><div id='here'></div></body>")
    page.add_style_tag(content=style + f".arrcoc .ac-stage {{ width: {one.image.width}px !important }}")
    page.add_script_tag(content=script)
    page.evaluate("view => ArrCocViewer.look(document.getElementById('here'), view).ready", view)
    shown = Image.open(io.BytesIO(page.locator(".ac-stage").screenshot())).convert("RGB")
    margin, head = 28, 84
    sheet = Image.new("RGB", (shown.width + 2 * margin, shown.height + head + margin), "white")
    sheet.paste(shown, (margin, head))
    draw = ImageDraw.Draw(sheet)
    draw.rectangle((margin - 1, head - 1, margin + shown.width, head + shown.height), outline=(206, 209, 214))
    count = f"{one.allocation.kept} of {one.allocation.total:,} cells are read"
    draw.text((margin, head / 2), one.question, INK, font("bold", 14.0), anchor="lm")
    draw.text((sheet.width - margin, head / 2), count, QUIET, font("normal", 10.0), anchor="rm")
    sheet.save(DOCS / "first.png", optimize=True)


def choice(selector: Selector, sample: AppSample) -> Choice:
    """What the guide keeps for one question."""
    image = Image.open(sample.image).convert("RGB")
    return Choice(image, selector(image, sample.question, budget=BUDGET), sample.question, sample.evidence)


# ---- the page to click through -------------------------------------------------------------------------

TRY = DOCS / "try.json"
CLICKED: dict[str, tuple[str, dict[str, str]]] = {
    "order": ("an order page in a web shop", {
        "When will the parcel arrive?": "Friday, 13 March, 10:00 to 12:00",
        "How much did I pay?": "€76.35",
        "What does the watering can cost?": "€26.90",
        "Where is it sent to?": "Tegelbruksgatan 14, 3rd floor, 582 24 Linköping, Sweden",
        "What is the name of the driver?": "",
    }),
    "invoice": ("an invoice", {
        "What is the total?": "£6,591.60",
        "Who is the seller?": "Alder & Finch Joinery",
        "When do I have to pay?": "2 April 2026",
        "How many lamps were ordered?": "8",
        "What is the account number of the bank?": "",
    }),
    "settings": ("a settings screen in dark colours", {
        "Is Bluetooth on?": "yes",
        "When does the screen turn off?": "after 2 minutes",
        "How full is the battery?": "81%",
        "Which network is it connected to?": "Harbour 5G",
        "Is the microphone muted?": "",
    }),
    "odd": ("crosses on black, of which one is odd", {
        "Which one is different?": "the yellow cross",
        "What colour are most of the crosses?": "blue",
        "Where is the circle?": "",
    }),
    "street": ("a street with shops, cars and people", {
        "Where is the museum?": "in the yellow house",
        "Where can I get coffee?": "in the purple house",
        "What is unusual in this image?": "nothing",
        "Give me an overview.": "a street with shops, trees, cars and people",
        "Where is the bicycle?": "",
    }),
}  # fmt: skip
"""Of the page: a picture's description, and its questions with their answers; empty where it has none."""


def clicked(selector: Selector) -> list[dict[str, Any]]:
    """What the guide keeps for each question of that page, and the fact that it ranks first."""
    made = []
    for name, (alt, answers) in CLICKED.items():
        image = Image.open(PICTURES / f"{name}.png").convert("RGB")
        asked_of = []
        for question, answer in answers.items():
            decision = selector.decide(image, question, BUDGET)
            (kept,), (coupling,) = decision.allocations, decision.couplings
            likely = likely_units(image, kept)
            asked_of.append({
                "question": question, "answer": answer, "kept": kept.keep.tolist(),
                "fact": [round(side) for side in likely[0]] if likely else [], "sure": round(coupling.confidence, 2),
            })  # fmt: skip
        _, rows, columns = kept.grid
        made.append(
            {"name": name, "alt": alt, "size": image.size, "grid": [rows, columns], "questions": asked_of}
        )
    return made


# ---- the app in a browser ------------------------------------------------------------------------------

SIZE = {"width": 1400, "height": 1000}
PROBES = ("sweep", "contenders", "faithfulness")
PATIENCE = 300_000  # ms: models load, and probes answer many times


def of_app(app: App) -> dict[str, Any]:
    """What the app's first screen offers: its tabs and the questions of its samples, in their order."""
    parts = app.config["components"]
    tabs = [part["props"]["label"] for part in parts if part["type"] == "tabitem"]
    groups = {
        part["props"]["label"]: [
            unescape(re.search("<span>(.*)</span>", chip)[1]) for (chip,) in part["props"]["samples"]
        ]
        for part in parts
        if part["type"] == "dataset"
    }
    return {"tabs": tabs, "samples": groups}


def photograph(first: Choice) -> dict[str, Any]:
    """Draw app.png, the first screen, microscope.png, all that was measured of an answer, and first.png."""
    from playwright.sync_api import sync_playwright

    from arr_coc.app import build_app

    app = build_app()
    _, address, _ = app.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=next(filter(None, map(shutil.which, NAMES))), args=["--no-sandbox"]
            )
            page = browser.new_context(viewport=SIZE, reduced_motion="reduce").new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(address)
            page.wait_for_selector("#sight canvas")
            page.wait_for_function("document.querySelector('#model').innerText.includes('parameters')")
            page.wait_for_timeout(1000)  # buttons fade in
            seen = [tab for tab in page.get_by_role("tab").all_inner_texts() if tab]
            page.screenshot(path=DOCS / "app.png")
            sample = json.loads(SAMPLE.read_text(encoding="utf-8"))["question"]  # the bundled model reads it
            page.locator("#samples button", has_text=sample).first.click()
            page.wait_for_selector("#canvas canvas")
            page.click("#ask")
            page.wait_for_function("document.querySelector('#status')?.innerText.startsWith('Answered in')")
            page.wait_for_selector("#ask:enabled")
            page.click("#closer .label-wrap")
            page.wait_for_selector("#microscope canvas")
            for probe in PROBES:
                page.click(f"#probe-{probe}")
                page.wait_for_function("document.querySelector('#measured').innerText === 'Measured.'")
                page.wait_for_selector(f"#probe-{probe}:enabled")
            page.mouse.move(0, 0)
            page.wait_for_timeout(500)
            page.locator("#microscope").screenshot(path=DOCS / "microscope.png")
            draw_first(browser.new_page(), first)
            browser.close()
    finally:
        app.close(verbose=False)
    shown = of_app(app)
    if not set(seen) <= set(shown["tabs"]):
        raise ValueError(
            f"the browser shows the tabs {seen}, and the app has {shown['tabs']}: look at the page"
        )
    return shown


# ---- what they show ------------------------------------------------------------------------------------

SHOWN = DOCS / "shown.json"
PICTURED = ("first", "look", "app", "microscope")


def of_choice(one: Choice) -> dict[str, Any]:
    """A choice as it is recorded beside its picture."""
    return {"question": one.question, "budget": one.allocation.kept, "kept": one.allocation.keep.tolist()}


def digests() -> dict[str, str]:
    """SHA-256 of each picture."""
    return {name: sha256((DOCS / f"{name}.png").read_bytes()).hexdigest() for name in PICTURED}


def show() -> None:
    """Draw all of them, and record what they show: the package without an OCR."""
    sums.ocr_installed = lambda: False
    selector = Selector.from_pretrained(relevance="guide")
    first = first_choice(selector)
    shown = {
        "first": of_choice(first),
        "look": [of_choice(one) for one in draw_look(selector)],
        "app": photograph(first),
    }
    SHOWN.write_text(json.dumps(shown | {"sha256": digests()}) + "\n", encoding="utf-8")
    write_clicked(selector)


def write_clicked(selector: Selector) -> None:
    """Record what the page to click through shows, a picture a line."""
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in clicked(selector))
    TRY.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", action="store_true", help="render the pages that are shown, nothing else")
    parser.add_argument(
        "--try", action="store_true", dest="clicked", help="write docs/try.json, nothing else"
    )
    args = parser.parse_args()
    if args.pages:
        draw()
    elif args.clicked:
        write_clicked(Selector.from_pretrained(relevance="guide"))
    else:
        show()
