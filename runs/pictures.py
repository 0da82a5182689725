"""Draw the pictures that the app has to choose from, and those of the pages: an invoice, settings, a chart, a ticket.

    python runs/pictures.py                          runs/pictures/*.html -> src/arr_coc/app/pictures
    python runs/pictures.py --figure docs/look.png   the guide page's figure, of the pictures that are there
    python runs/pictures.py --first docs             the README's picture: docs/order.png, and docs/first.png of it

They are written by hand, so that a stranger recognises them and no page type of `arr_coc_lab.world` made them: the guide
was taught on none of them. The system's Chromium lays them out and says where the marked evidence stands. Machines
differ in their fonts (here: Inter), so the pictures are committed; the figure is made of those, with the guide that is
bundled. Cost: seconds each.
"""

from __future__ import annotations

import argparse
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFilter

from arr_coc.app.samples import LISTED, PICTURES, SHAPES, AppSample, pictures
from arr_coc.choose.allocation import Allocation
from arr_coc.data.record import Box
from arr_coc.guide.selector import Selector
from arr_coc.trace.picture import DPI, TITLE, draw_panel, font, kept_panel, panel_pixels, truth_of, wrap
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser.chromium import Chromium

PAGES = Path(__file__).parent / "pictures"
ORDER = ("invoice", "chart", "settings", "ticket")
"""Of the pages, here and in the app."""
COLOURS = 128
"""Of a palette: print on plain paper has few."""
BUDGET = 64
GAP, CAPTION = 0.22, 0.36
"""Inches between the pictures of the figure, and of the question above each."""


def draw() -> None:
    """Render every page, and list its questions with their evidence."""
    listed = []
    PICTURES.mkdir(exist_ok=True)
    with Chromium() as chromium:
        for name in ORDER:
            html, size, questions = read_page(name)
            shot = chromium.render(html, *size)
            for question in questions:
                question["evidence"] = [box for piece in question.pop("pieces") for box in shot.pieces[piece]]
            listed.append({"name": name, "questions": questions})
            paletted(Image.open(io.BytesIO(shot.png))).save(PICTURES / f"{name}.png", optimize=True)
    (PICTURES / LISTED).write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


SHAPES_PAGE = (5, (1024, 768), "test")
"""Seed, size in px and split of the drawn page among the app's samples."""
ASKED = ("What is larger: the cyan ring or the purple ring?", "How many rings are there?")


def draw_shapes() -> None:
    """Draw the page with shapes, and list its two questions."""
    page = draw_page(*SHAPES_PAGE)
    questions = {question.text: question for question in page.questions}
    asked = [
        {"question": text, "answer": questions[text].answer, "evidence": questions[text].evidence}
        for text in ASKED
    ]
    page.image.save(PICTURES / "shapes.png", optimize=True)
    listed = [{"name": "shapes", "questions": asked}]
    (PICTURES / SHAPES).write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


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


def figure(target: Path) -> None:
    """Draw what the guide keeps for the first question about each picture."""
    selector, firsts = Selector.from_pretrained(), {sample.image: sample for sample in reversed(pictures())}
    choices = [choice(selector, sample) for sample in reversed(firsts.values())]
    paletted(draw_gallery(choices, columns=2)).save(target, optimize=True)


FIRST = ("order", 0, 64)
"""The page of the README's first picture, the number of its question and the budget."""
PAPER, EDGE, INK, QUIET = (233, 235, 239), (217, 119, 6), (23, 23, 28), (96, 104, 114)


def first(folder: Path) -> None:
    """Render the page of the README's first picture, let the guide choose, and draw what it keeps."""
    name, number, budget = FIRST
    html, size, questions = read_page(name)
    with Chromium() as chromium:
        page = Image.open(io.BytesIO(chromium.render(html, *size).png)).convert("RGB")
    page.save(folder / f"{name}.png", optimize=True)
    question = questions[number]["question"]
    kept = Selector.from_pretrained()(page, question, budget=budget)
    draw_kept(page, kept, question).save(folder / "first.png", optimize=True)


def draw_kept(page: Image.Image, kept: Allocation, question: str) -> Image.Image:
    """The page in full colour where cells were kept, faded elsewhere, under its question and the count of cells."""
    shown = Image.blend(page, Image.new("RGB", page.size, PAPER), 0.74)
    boxes = [tuple(map(round, box)) for box in kept.boxes(page.size).tolist()]
    for box in boxes:
        shown.paste(page.crop(box), box[:2])
    inside = Image.new("L", page.size)
    for box in boxes:
        inside.paste(255, box)
    # A pixel of the rim is outside of the kept cells and next to one of them.
    rim = ImageChops.subtract(inside.filter(ImageFilter.MaxFilter(5)), inside)
    shown.paste(EDGE, mask=rim)
    margin, head = 28, 84
    sheet = Image.new("RGB", (page.width + 2 * margin, page.height + head + margin), "white")
    sheet.paste(shown, (margin, head))
    draw = ImageDraw.Draw(sheet)
    draw.rectangle((margin - 1, head - 1, margin + page.width, head + page.height), outline=(206, 209, 214))
    count = f"{kept.kept} of {kept.total:,} cells kept"
    draw.text((margin, head / 2), question, INK, font("bold", 14.0), anchor="lm")
    draw.text((sheet.width - margin, head / 2), count, QUIET, font("normal", 10.0), anchor="rm")
    return sheet


def choice(selector: Selector, sample: AppSample) -> Choice:
    """What the guide keeps for one question."""
    image = Image.open(sample.image).convert("RGB")
    return Choice(image, selector(image, sample.question, budget=BUDGET), sample.question, sample.evidence)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--figure", type=Path, metavar="PNG", help="draw the guide page's figure, render nothing"
    )
    parser.add_argument(
        "--first", type=Path, metavar="DIR", help="render and draw the README's first picture"
    )
    arguments = parser.parse_args()
    if arguments.first:
        first(arguments.first)
    elif arguments.figure:
        figure(arguments.figure)
    else:
        draw()
        draw_shapes()
