"""Renders the pages of another author, with the boxes that answer their questions, for a measurement.

    python runs/strangers.py FOLDER              61 pages: half a minute of one core
    python runs/guide.py --strangers FOLDER

FOLDER is a cache of rendered pages (`arr_coc_lab.world.browser.cache`), all of them in its split "test". The pages are
the HTML files of runs/strangers. Boxes follow the fonts of this machine; a question whose evidence is not wholly in
the picture is left out, and the script says so.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from arr_coc_lab.evaluate.guide_pages import DOCUMENT
from arr_coc_lab.world.browser.cache import write
from arr_coc_lab.world.browser.chromium import Box, Chromium
from arr_coc_lab.world.browser.page import Inquired, RenderedPage

PAGES = Path(__file__).with_name("strangers")
EVIDENCE = (PAGES / "evidence.js").read_text(encoding="utf-8")
"""A JavaScript function from specs of evidence to boxes."""
CONTENT = """() => {
  let bottom = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.data.trim() || node.parentElement.closest("style")) continue;
    range.selectNodeContents(node);
    bottom = Math.max(bottom, range.getBoundingClientRect().bottom);
  }
  for (const drawing of document.querySelectorAll("svg"))
    bottom = Math.max(bottom, drawing.getBoundingClientRect().bottom);
  const height = Math.max(document.documentElement.scrollHeight, document.body.scrollHeight);
  return [bottom, height];
}"""
"""Measures where the last text or drawing ends, and how high the page is."""
HIGHEST = 2048
"""CSS px of the highest viewport."""
EMPTY, MARGIN = 0.15, 0.08
"""More than the first share of the height empty below is cut down to the second."""


@dataclass(frozen=True)
class Query:
    """A question of the author: its kind, its text, and specs of its evidence (see evidence.js)."""

    kind: str
    text: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """A page of the author.

    Attributes:
        number: from 1.
        file: name of its HTML file.
        width: of the viewport in CSS px.
        height: of the viewport in CSS px; the picture of a page that does not fit is higher.
        scale: px per CSS px.
        crop: whether much empty space below is cut off.
        queries: what is asked.
    """

    number: int
    file: str
    width: int
    height: int
    scale: float
    crop: bool
    queries: tuple[Query, ...]


def read_pages(folder: Path = PAGES) -> tuple[Page, ...]:
    """The pages of the author, in order."""
    return tuple(
        Page(
            number,
            record["page"],
            record["width"],
            record["height"],
            float(record["scale"]),
            record["crop"],
            tuple(Query(q["kind"], q["text"], tuple(q["evidence"])) for q in record["questions"]),
        )
        for number, record in enumerate(json.loads((folder / "questions.json").read_bytes()), 1)
    )


def render(chromium: Chromium, page: Page, folder: Path = PAGES) -> RenderedPage:
    """A page as a cache keeps it, with the questions whose evidence is wholly in the picture.

    Raises:
        ValueError: a spec of evidence does not name one thing of the page.
    """
    view = chromium.page(page.scale)
    view.set_viewport_size({"width": page.width, "height": page.height})
    view.set_content((folder / page.file).read_text(encoding="utf-8"), wait_until="load")
    height = page.height
    bottom, full = view.evaluate(CONTENT)
    if full > height:
        height = min(full, HIGHEST)
        view.set_viewport_size({"width": page.width, "height": height})
        bottom, _ = view.evaluate(CONTENT)
    if page.crop and height - bottom > EMPTY * height:
        height = int(bottom + MARGIN * height)
        view.set_viewport_size({"width": page.width, "height": height})
    boxes = [_boxes(page, query, view.evaluate(EVIDENCE, list(query.evidence))) for query in page.queries]
    shot = chromium.shoot(page.scale)
    questions = tuple(
        Inquired(query.kind, query.text, "", evidence)
        for query, evidence in zip(page.queries, (_inside(each, page, height) for each in boxes), strict=True)
        if evidence is not None
    )
    return RenderedPage(shot.png, questions, shot.words, DOCUMENT, None, page.number, "test", page.file)


def _boxes(page: Page, query: Query, measured: list[dict]) -> list[list[float]]:
    """The boxes of a question in CSS px."""
    for spec, each in zip(query.evidence, measured, strict=True):
        if "error" in each:
            raise ValueError(f"evidence {spec!r} of {page.file}: {each['error']}; mend questions.json")
    return [box for each in measured for box in each["boxes"]]


def _inside(boxes: list[list[float]], page: Page, height: int) -> tuple[Box, ...] | None:
    """Distinct boxes in px of the picture; None where one leaves it by more than a CSS px."""
    evidence = []
    for x0, y0, x1, y1 in boxes:
        if x0 < -1 or y0 < -1 or x1 > page.width + 1 or y1 > height + 1:
            return None
        corners = max(0, x0), max(0, y0), min(page.width, x1), min(height, y1)
        left, top, right, low = (round(corner * page.scale, 1) for corner in corners)
        evidence.append((left, top, right, low))
    return tuple(dict.fromkeys(evidence))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the cache is written")
    place = parser.parse_args().folder / "test"
    place.mkdir(parents=True, exist_ok=True)
    pages = read_pages()
    count = 0
    with Chromium() as chromium:
        for page in pages:
            rendered = render(chromium, page)
            write(place / str(page.number), rendered)
            count += len(rendered.questions)
            if len(rendered.questions) < len(page.queries):
                missing = len(page.queries) - len(rendered.questions)
                print(f"{page.file}: {missing} questions left out, their evidence is not in the picture")
    print(f"{len(pages)} pages, {count} questions")


if __name__ == "__main__":
    main()
