"""How often the right map leads, of questions as people word them, by seven kinds of question.

    python runs/wordings.py runs/wordings_held_out.tsv --name "held out, after" --out runs/results/wordings.json

A list has a kind and a question a line. `wordings_held_out.tsv` was written from the names of the kinds alone, before the
rules of `guide/question.py` and `guide/trust.py` were read, and no rule was made by it; those were made with
`wordings_development.tsv`. Every question is asked of one picture of its kind. With --out the figures are joined to the file.
Cost: a fifth of a second of one core a question.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont

from arr_coc.guide.trust import verdict_of
from arr_coc.selector import Selector
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.dense import draw_dense_page
from arr_coc_lab.world.odd import draw_odd_page

MAPS = ("information", "perspectival", "participatory")
RIGHT = {
    "odd": "perspectival",
    "formula": "information",
    "transcription": "information",
    "overview": "information",
    "colour": "participatory",
    "lookup": "participatory",
    "place": "participatory",
}
"""The map that should lead, by kind of question."""
BUDGET = 64
FORM = (
    "Invoice number 40817", "Date 12 March 2024", "Due date 11 April 2024", "Customer Anna Berger",
    "Delivery address 14 Mill Lane", "Phone 030 555 0199", "Description Oak desk", "Summary 3 items",
    "Weight 3.2 kg", "Shipping method Express 12.00", "Unusual activity fee 25.00", "Subtotal 410.00",
    "Tax 82.00", "Total 492.00", "Opening hours 9:00 - 17:30", "Wi-Fi password tulip88", "Overview page 17",
)  # fmt: skip
"""What is printed on the page of the lookups."""


def form() -> Image.Image:
    """A page of labels and values, one a line."""
    image = Image.new("RGB", (1024, 1024), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(26)
    for row, text in enumerate(FORM):
        draw.text((80, 50 + 56 * row), text, "black", font)
    return image


def shapes() -> Image.Image:
    """A red star, a blue circle, a green triangle and a yellow square."""
    image = Image.new("RGB", (1024, 768), "white")
    draw = ImageDraw.Draw(image)
    draw.regular_polygon((250, 200, 90), 3, fill=(30, 140, 60))
    draw.ellipse((680, 110, 860, 290), fill=(30, 90, 220))
    draw.rectangle((170, 480, 330, 640), fill=(250, 220, 40))
    star = (770, 450), (795, 530), (880, 530), (812, 580), (838, 660)
    inner = (770, 612), (702, 660), (728, 580), (660, 530), (745, 530)
    draw.polygon((*star, *inner), fill=(210, 30, 30))
    return image


def pictures() -> dict[str, Image.Image]:
    """The picture that each kind of question is asked of."""
    page, scene = draw_page(0, (1024, 1024), "test", void=False).image, shapes()
    return {
        "odd": draw_odd_page(0, (1024, 1024), "test", "turned").image,
        "formula": draw_dense_page(0, (1024, 1024), "test", "formula").image,
        "transcription": page,
        "overview": page,
        "colour": scene,
        "lookup": form(),
        "place": scene,
    }


def measure(file: Path) -> dict[str, Any]:
    """The share of questions of a list whose right map leads, by kind, and those where another does."""
    with file.open(encoding="utf-8") as lines:
        asked = [(row["kind"], row["question"]) for row in csv.DictReader(lines, delimiter="\t")]
    selector, shown = Selector(), pictures()
    right, missed = defaultdict[str, int](int), defaultdict[str, dict[str, str]](dict)
    for kind, question in asked:
        decision = selector.decide(shown[kind], question, BUDGET)
        gates = decision.allocations[0].weights.tolist()
        if MAPS[gates.index(max(gates))] == RIGHT[kind]:
            right[kind] += 1
        else:
            missed[kind][question] = verdict_of(decision.couplings[0])
    return {
        "guide": selector.guide.version,
        "questions": len(asked),
        "right": sum(right.values()),
        "kinds": {
            kind: {
                "questions": sum(kind == one for one, _ in asked),
                "right": right[kind],
                "taken for": missed[kind],
            }
            for kind in RIGHT
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("list", type=Path)
    parser.add_argument("--name", required=True, help="of the figures in the result file")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = measure(arguments.list)
    if arguments.out is not None:
        held = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
        text = json.dumps(held | {arguments.name: result}, indent=1, ensure_ascii=False)
        arguments.out.write_text(text + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
