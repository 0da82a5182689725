"""How much of the evidence relevance "page" keeps on rendered pages, beside the guide and their sum.

    python runs/page_snapshots.py --out runs/results/page-snapshots.json      71 pages: some five minutes of one core

The pages are HTML of other hands: runs/strangers (61) and runs/units (10), rendered by Chromium, with questions and
the boxes of their evidence from the DOM. "snapshot": Playwright's ARIA snapshot with boxes (mode "ai"), as it is.
"list": the JSON form, a text for each line of a text node. Budgets are shares of 1,024 cells of the picture's own
grid. Nothing of `page` was fitted to these pages; the head was taught on the print of real pictures.
"""

import argparse
import io
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from PIL import Image

from arr_coc.data.evidence import evidence_cells
from arr_coc.files.pixels import image_pixels
from arr_coc.guide.coupling import GuideSource
from arr_coc.guide.guide import load_guide
from arr_coc.relevance.page import PageSource, PageText, parse_snapshot, parse_texts
from arr_coc.relevance.source import SumSource
from arr_coc.selector import Sizing
from arr_coc_lab.evaluate.sources import join_table
from arr_coc_lab.world.browser.chromium import Box, Chromium

sys.path.insert(0, str(Path(__file__).parent))

from strangers import EVIDENCE, read_pages, render
from units import PAGES as UNITS

BUDGETS = (64, 128, 273)
OF = 1024
LINES = """scale => {
  const made = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest("style,script,select")) continue;
    let line = null;
    for (const word of node.data.matchAll(/\\S+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const r = range.getBoundingClientRect();
      if (r.width < 1 || r.height < 1) continue;
      if (line && Math.abs(line.box[1] - r.top) < r.height / 2) {
        line.text += " " + word[0];
        line.box[2] = r.right;
        line.box[3] = Math.max(line.box[3], r.bottom);
      } else {
        line = {text: word[0], role: element.tagName.toLowerCase(), box: [r.left, r.top, r.right, r.bottom]};
        made.push(line);
      }
    }
  }
  for (const field of document.querySelectorAll("input,textarea,select,img,button,[role=img],[role=switch]")) {
    const r = field.getBoundingClientRect();
    const chosen = field.selectedOptions ? [...field.selectedOptions].map(o => o.text).join(" ") : "";
    const text = chosen || (["checkbox", "radio", "password"].includes(field.type) ? "" : field.value)
      || field.placeholder || field.getAttribute("aria-label") || field.alt || field.title || "";
    if (r.width < 1 || r.height < 1 || (field.tagName === "BUTTON" && field.innerText.trim())) continue;
    made.push({text, role: field.type || field.tagName.toLowerCase(), box: [r.left, r.top, r.right, r.bottom]});
  }
  return made.map(one => ({...one, box: one.box.map(side => side * scale)}));
}"""
"""Lists the lines of text nodes, and what fields and pictures say, in px of the picture."""


@dataclass(frozen=True)
class Shown:
    """A rendered page with its snapshots and questions, (text, evidence)."""

    group: str
    name: str
    image: Image.Image
    scale: float
    snapshot: str
    listed: tuple[PageText, ...]
    questions: tuple[tuple[str, tuple[Box, ...]], ...]


def strangers(chromium: Chromium) -> Iterator[Shown]:
    """The pages of runs/strangers."""
    for page in read_pages():
        made = render(chromium, page)
        image = Image.open(io.BytesIO(made.png)).convert("RGB")
        questions = tuple((one.text, one.evidence) for one in made.questions if one.evidence)
        yield shown("strangers", page.file, chromium, page.scale, image, questions)


def units(chromium: Chromium) -> Iterator[Shown]:
    """The pages of runs/units."""
    for page in json.loads((UNITS / "questions.json").read_bytes()):
        view = chromium.page(page["scale"])
        view.set_viewport_size({"width": page["width"], "height": page["height"]})
        view.set_content((UNITS / f"{page['page']}.html").read_text(encoding="utf-8"), wait_until="load")
        image = Image.open(io.BytesIO(view.screenshot(type="png"))).convert("RGB")
        questions = []
        for question in page["questions"]:
            found = view.evaluate(EVIDENCE, [question["target"], *question["with"]])
            boxes = [tuple(side * page["scale"] for side in box) for one in found for box in one["boxes"]]
            questions.append((question["text"], tuple(boxes)))
        yield shown("units", page["page"], chromium, page["scale"], image, tuple(questions))


def shown(
    group: str, name: str, chromium: Chromium, scale: float, image: Image.Image, questions: Any
) -> Shown:
    view = chromium.page(scale)
    listed = parse_texts(view.evaluate(LINES, scale), name)
    return Shown(group, name, image, scale, view.aria_snapshot(mode="ai", boxes=True), listed, questions)


def measure(pages: Iterator[Shown], guide: Any, verbose: bool) -> dict[str, Any]:
    rows: dict[tuple[str, str], list[dict[int, float]]] = defaultdict(list)
    reading: list[float] = []
    asking: list[float] = []
    for page in pages:
        picture = image_pixels(page.image)[0]
        start = time.process_time()
        by_snapshot = PageSource(parse_snapshot(page.snapshot, page.name), page.scale)
        view = by_snapshot.view(picture)
        reading.append(1000 * (time.process_time() - start))
        by_list = PageSource(page.listed)
        sources = {
            "guide": guide,
            "page, snapshot": by_snapshot,
            "page, list": by_list,
            "guide + page, snapshot": SumSource([guide, by_snapshot], guide.guide),
            "guide + page, list": SumSource([guide, by_list], guide.guide),
        }
        views = {name: source.view(picture) for name, source in sources.items()}
        grid = Sizing().grid(page.image.height, page.image.width)
        for text, boxes in page.questions:
            start = time.process_time()
            by_snapshot.couple(view, text, grid)
            asking.append(1000 * (time.process_time() - start))
            needed = evidence_cells(boxes, grid, page.image.size).flatten()
            order = {
                name: source.couple(views[name], text, grid).logits.flatten()
                for name, source in sources.items()
            } | {"oracle": needed.float()}
            kept = {}
            for name, logits in order.items():
                cells = needed[logits.argsort(descending=True, stable=True)].float()
                kept[name] = {
                    b: float(cells[: max(1, round(b * len(cells) / OF))].sum() / needed.sum())
                    for b in BUDGETS
                }
                for group in ("all", page.group):
                    rows[group, name].append(kept[name])
            if verbose:
                print(
                    f"{page.name:28.28} {text:52.52}",
                    *(f"{name}:{one[64]:.2f}" for name, one in kept.items()),
                )
    table: dict[str, Any] = {}
    for (group, name), own in rows.items():
        facts = {
            str(b): {
                "recall": round(fmean(row[b] for row in own), 4),
                "whole": round(fmean(float(row[b] > 0.999) for row in own), 4),
            }
            for b in BUDGETS
        }
        table.setdefault(group, {})[name] = {"questions": len(own)} | facts
    costs = {"view": round(median(reading), 1), "question": round(median(asking), 1)}
    return {"groups": table, "ms of one core, median": costs}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("strangers", "units"))
    parser.add_argument("--verbose", action="store_true", help="a line a question")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    guide = GuideSource(load_guide(None))
    with Chromium() as chromium:
        makers = {"strangers": strangers, "units": units}
        chosen = [makers[arguments.only]] if arguments.only else list(makers.values())
        pages = [page for make in chosen for page in make(chromium)]
    result = measure(iter(pages), guide, arguments.verbose)
    for group, methods in result["groups"].items():
        print(group)
        for method, facts in methods.items():
            print(
                f"  {method:26s}", facts["questions"],
                *(f"{facts[str(b)]['recall']:.3f} ({facts[str(b)]['whole']:.0%})" for b in BUDGETS),
            )  # fmt: skip
    print(result["ms of one core, median"])
    if arguments.out:
        join_table(arguments.out, "rendered pages", {"guide": guide.guide.version} | result)


if __name__ == "__main__":
    main()
