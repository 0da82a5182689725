"""Whether the doors show whole facts: boxes of `where`, lines of `read`, and evidence in packed pictures.

    python runs/units.py --out runs/results/units.json              ten pages of runs/units, 60 questions
    python runs/units.py --folder FOLDER --name "real screenshots" --out runs/results/units.json
    python runs/units.py --rendered test-pages --name "rendered pages" --out runs/results/units.json

The pages of runs/units are HTML of kinds that no page type of `arr_coc_lab.world` draws; the units were
developed on half of them. Their boxes come from the DOM, those of print trimmed to its ink. FOLDER is one of
`questions.jsonl`, with boxes by hand; --rendered a cache of `arr-coc world`.

where    the target's centre in the first, in one of the first five and ten boxes; the target whole in them;
         what share of the picture the first five cover; the cells' boxes beside them
pack     in 400 tokens, and in 64 of 1,024 scaled to the picture: every piece of evidence whole on one part and
         at least 11 px high there ("whole"); also pieces of one height on one part, or on parts of the same rows
         ("attributable"). Beside it the shrunk picture and the packing for another question.

Cost: some three minutes of one core for the ten pages.
"""

import argparse
import io
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from PIL import Image

from arr_coc.choose.boxes import Box
from arr_coc.files.images import open_image
from arr_coc.pixels import Packed, find_page, pack_for, ranked_units
from arr_coc.selector import Selector
from arr_coc_lab.evaluate.guide_pages import page_samples
from arr_coc_lab.evaluate.sources import join_table, questions_of
from arr_coc_lab.world.browser.chromium import Chromium

sys.path.insert(0, str(Path(__file__).parent))

from strangers import EVIDENCE

PAGES = Path(__file__).with_name("units")
FIRST = (1, 5, 10)
LEGIBLE = 11  # px of the height of a piece of evidence as it is sent
SLACK = 2  # px by which a box may miss what it holds
TOKENS = 400
SCALED, OF = 64, 1024
GROUND = 24  # of 255, by which ink differs from the ground of its box


@dataclass(frozen=True)
class Asked:
    """A question, with the box that answers it and those of what it is attributed by, in px."""

    picture: str
    half: str
    image: Callable[[], Image.Image]
    text: str
    target: Box
    evidence: tuple[Box, ...]  # without the blank rows and columns around print
    heights: tuple[float, ...]  # of the boxes before that


def trimmed(box: Box, pixels: np.ndarray) -> Box:
    """A box of print without the empty rows and columns around its ink."""
    x0, y0, x1, y1 = (round(side) for side in box)
    x0, y0 = max(0, x0), max(0, y0)
    part = pixels[y0:y1, x0:x1].astype(np.int16)
    if not part.size:
        return box
    edge = np.concatenate((part[0], part[-1], part[:, 0], part[:, -1]))
    inked = np.abs(part - np.median(edge, axis=0)).max(-1) > GROUND
    rows, columns = np.flatnonzero(inked.any(1)), np.flatnonzero(inked.any(0))
    if not len(rows):
        return box
    return (
        float(x0 + columns[0]), float(y0 + rows[0]), float(x0 + columns[-1] + 1), float(y0 + rows[-1] + 1)
    )  # fmt: skip


def own_pages() -> Iterator[Asked]:
    """The questions about the pages of runs/units, rendered now."""
    with Chromium() as chromium:
        for page in json.loads((PAGES / "questions.json").read_bytes()):
            view = chromium.page(page["scale"])
            view.set_viewport_size({"width": page["width"], "height": page["height"]})
            view.set_content((PAGES / f"{page['page']}.html").read_text(encoding="utf-8"), wait_until="load")
            image = Image.open(io.BytesIO(view.screenshot(type="png"))).convert("RGB")
            pixels = np.asarray(image)
            for question in page["questions"]:
                specs = [question["target"], *question["with"]]
                boxes: list[Box] = []
                heights: list[float] = []
                for spec, found in zip(specs, view.evaluate(EVIDENCE, specs), strict=True):
                    if "error" in found:
                        raise ValueError(f"evidence {spec!r} of {page['page']}: {found['error']}")
                    sides = np.array(found["boxes"]) * page["scale"]
                    x0, y0 = sides[:, :2].min(0).tolist()
                    x1, y1 = sides[:, 2:].max(0).tolist()
                    whole = (x0, y0, x1, y1)
                    if x0 < 0 or y0 < 0 or x1 > image.width + 1 or y1 > image.height + 1:
                        raise ValueError(f"evidence {spec!r} of {page['page']} is not in the picture")
                    heights.append(min((sides[:, 3] - sides[:, 1]).tolist()))
                    boxes.append(whole if spec.startswith("box:") else trimmed(whole, pixels))
                yield Asked(
                    page["page"], page["half"], lambda one=image: one, question["text"], boxes[0],
                    tuple(boxes), tuple(heights),
                )  # fmt: skip


def labelled(folder: Path) -> Iterator[Asked]:
    """The questions of a folder with boxes by hand; its kinds of picture are the halves."""
    for name, rows in questions_of(folder).items():
        pixels = np.asarray(open_image(folder / name))
        for row in rows:
            boxes = tuple(trimmed(box, pixels) for box in row["boxes"])
            if boxes:
                yield Asked(
                    name, row["kind"], lambda path=folder / name: open_image(path), row["question"],
                    boxes[-1], boxes, tuple(box[3] - box[1] for box in row["boxes"]),
                )  # fmt: skip


def rendered(cache: Path) -> Iterator[Asked]:
    """Questions about 64 rendered pages of `arr-coc world`, two a page."""
    for sample in page_samples(cache, "test", 64, 2):
        pixels = np.asarray(sample.image.convert("RGB"))
        for question in sample.questions:
            if question.evidence:
                boxes = tuple(trimmed(box, pixels) for box in question.evidence)
                yield Asked(
                    sample.name, "rendered", lambda one=sample: one.image, question.text, boxes[-1], boxes,
                    tuple(box[3] - box[1] for box in question.evidence),
                )  # fmt: skip


# ---- what is measured ------------------------------------------------------------------------------------


def holds(outer: Box, inner: Box, slack: float = SLACK) -> bool:
    """Whether a box holds another, up to `slack` px on each side."""
    near = all(outer[k] <= inner[k] + slack for k in (0, 1))
    return near and all(outer[k] >= inner[k] - slack for k in (2, 3))


def found_by(boxes: Sequence[Box], target: Box, size: tuple[int, int]) -> dict[str, float]:
    """How well ranked boxes show a target."""
    x, y = (target[0] + target[2]) / 2, (target[1] + target[3]) / 2
    centre = [one[0] <= x <= one[2] and one[1] <= y <= one[3] for one in boxes]
    whole = [holds(one, target) for one in boxes]
    facts: dict[str, float] = {}
    for count in FIRST:
        facts[f"centre in {count}"] = float(any(centre[:count]))
        facts[f"whole in {count}"] = float(any(whole[:count]))
    covered = np.zeros((size[1], size[0]), dtype=bool)
    for one in boxes[:5]:
        covered[int(one[1]) : int(one[3]), int(one[0]) : int(one[2])] = True
    return facts | {"boxes": float(len(boxes)), "area of 5": float(covered.mean())}


def shown_on(packed: Packed, evidence: Sequence[Box], heights: Sequence[float]) -> dict[str, float]:
    """Whether a packed picture shows evidence whole and legible, and attributable."""
    places: list[list[int]] = []
    for box, height in zip(evidence, heights, strict=True):
        places.append(
            [
                k
                for k, place in enumerate(packed.places)
                if holds(place.origin, box)
                and height * (place.box[3] - place.box[1]) >= LEGIBLE * (place.origin[3] - place.origin[1])
            ]
        )
    whole = all(places)
    linked = whole
    for i, one in enumerate(evidence):
        for j in range(i):
            other = evidence[j]
            shared = min(one[3], other[3]) - max(one[1], other[1])
            if shared < 0.5 * min(one[3] - one[1], other[3] - other[1]):
                continue
            rows = [{packed.places[k].origin[1::2] for k in places[n]} for n in (i, j)]
            linked = linked and bool(set(places[i]) & set(places[j]) or rows[0] & rows[1])
    return {"whole": float(whole), "attributable": float(linked), "tokens": float(packed.tokens)}


def measure(asked: Sequence[Asked], selector: Selector, pack: bool, verbose: bool) -> dict[str, Any]:
    """The means of all figures by half and method."""
    rows: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    spent: list[float] = []
    before = "What is the weather like?"
    for one in asked:
        image = one.image()
        opened = selector.known(image)
        decision = selector.decide(opened, one.text)
        page = selector.beside(opened, find_page)
        start = time.process_time()
        units = ranked_units(page, decision.allocations[0])
        spent.append(1000 * (time.process_time() - start))
        cells = [tuple(map(float, box.box)) for box in decision.allocations[0].evidence(image.size)]
        found = {"where": [unit.box for unit in units], "where, cells": cells}
        figures = {name: found_by(boxes, one.target, image.size) for name, boxes in found.items()}
        full = image.width * image.height / 32**2
        for name, tokens in (("400", TOKENS), ("64 scaled", round(SCALED / OF * full))) if pack else ():
            tokens = max(1, min(tokens, round(full)))
            for method, question, layout in (
                ("pack", one.text, "auto"),
                ("shrunk", one.text, "shrunk"),
                ("pack, another question", before, "auto"),
            ):
                packed = pack_for(opened.image, question, tokens, layout=layout, selector=selector)
                figures[f"{method} @{name}"] = shown_on(packed, one.evidence, one.heights) | {
                    "shrunk": float(packed.layout in ("shrunk", "whole"))
                }
        before = one.text
        for method, facts in figures.items():
            for half in ("all", one.half):
                rows[half, method].append(facts)
        if verbose:
            print(f"{one.picture:12s} {one.text[:52]:52s}", *(f"{k}:{v}" for k, v in _short(figures)))
    table: dict[str, Any] = {}
    for (half, method), own in rows.items():
        facts = {name: round(fmean(row[name] for row in own), 4) for name in own[0]}
        table.setdefault(half, {})[method] = {"questions": len(own)} | facts
    return {"groups": table, "ms of ranking, CPU": round(median(spent), 1)}


def _short(figures: dict[str, dict[str, float]]) -> Iterator[tuple[str, str]]:
    for name, facts in figures.items():
        if "another" not in name:
            keys = [
                k for k in ("centre in 1", "whole in 1", "whole in 5", "whole", "attributable") if k in facts
            ]
            yield name, "".join(str(int(facts[k])) for k in keys) + "s" * int(facts.get("shrunk", 0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--folder", type=Path)
    where.add_argument("--rendered", type=Path)
    parser.add_argument("--kind", help="of picture, of --folder; others are left out")
    parser.add_argument("--half", help="of the pages; the other is left out")
    parser.add_argument("--name", default="pages of runs/units", help="of the table in the result file")
    parser.add_argument("--no-packing", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="a line a question")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if arguments.folder:
        asked = labelled(arguments.folder)
    else:
        asked = rendered(arguments.rendered) if arguments.rendered else own_pages()
    wanted = {arguments.kind, arguments.half} - {None}
    every = [one for one in asked if not wanted or one.half in wanted]
    selector = Selector()
    result = measure(every, selector, not arguments.no_packing, arguments.verbose)
    for half, methods in result["groups"].items():
        print(half)
        for method, facts in methods.items():
            print(f"  {method:34s}", "  ".join(f"{name} {value:g}" for name, value in facts.items()))
    print(f"ranking: {result['ms of ranking, CPU']} ms of CPU")
    if arguments.out:
        join_table(arguments.out, arguments.name, {"guide": selector.guide.version} | result)


if __name__ == "__main__":
    main()
