"""How well LoRAs for reading in part read fonts that nobody was taught: what chooses between them, since test pages may not.

    python runs/unseen_font.py bundled=bundled NAME=FOLDER [...] --pages 40 --out OUT.json

Validation pages: every second one in a font that is neither taught nor tested (two oblique cuts of the
monospaced font, two of the sans, one with serifs), the others in fonts of training, in which LoRAs hardly differ. Some
questions of each; the model answers from all tokens, and with the LoRAs of each allocator in `sparse` from 64 and 273
cells and in `saccade`. Beside exact match: of the first allocator's answers, how many are right where another's are
wrong (`lost`), and the other way round (`won`).

Cost: 1 s a question and allocator on one core. `--part 1/2` takes every second pair of pages, `--join` joins results.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

import torch
from rich.progress import track

from arr_coc import ARRCOCModel
from arr_coc.data.metrics import exact_match
from arr_coc.world import draw_page

FONTS = (
    "DejaVuSansMono-Oblique.ttf",
    "DejaVuSansMono-BoldOblique.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSans-BoldOblique.ttf",
    "DejaVuSerif.ttf",
)
WAYS = (("sparse", 64), ("sparse", 273), ("saccade", None))
SEED = 9000
"""Of the first page: validation pages that no other measurement asks about."""

Answers = dict[str, list[float]]
"""Of each way of answering, such as `bundled sparse@64`: 1 or 0 a question, the same questions in all."""


def answers(
    allocators: dict[str, str], numbers: Iterable[int], questions: int, size: int
) -> Iterator[tuple[str, Answers]]:
    """Of each page its set, `unseen` or `taught`, and which answers are right."""
    models = {
        name: ARRCOCModel.from_pretrained("bundled", allocator=None if folder == "bundled" else folder)
        for name, folder in allocators.items()
    }
    for number in track(list(numbers), description="pages"):
        font = FONTS[number // 2 % len(FONTS)] if number % 2 else None
        with patch("arr_coc.world.page.TRAIN_FONTS", (font,)) if font else nullcontext():
            page = draw_page(SEED + number, (size, size), "validation", void=False)
        step = max(1, len(page.questions) // questions)
        sessions = {name: model.session(page.image) for name, model in models.items()}
        right: Answers = defaultdict(list)
        for question in page.questions[::step][:questions]:
            whole = next(iter(sessions.values())).ask(question.text, mode="full")
            right["all tokens"].append(exact_match(whole.text, [question.answer]))
            for name, session in sessions.items():
                for mode, budget in WAYS:
                    answer = session.ask(question.text, mode=mode, budget=budget)
                    way = mode if budget is None else f"{mode}@{budget}"
                    right[f"{name} {way}"].append(exact_match(answer.text, [question.answer]))
        yield "unseen" if font else "taught", right


def summary(rows: Answers) -> dict[str, object]:
    """Exact match of every way of answering, and how it differs from the first allocator's."""
    lines: dict[str, object] = {"questions": len(rows["all tokens"])}
    first = next(way for way in rows if way != "all tokens").split()[0]
    for way, right in rows.items():
        lines[way] = {"exact match": round(fmean(right), 4)}
        own = rows.get(f"{first} {way.split()[-1]}")
        if own is not None and own is not right:
            pairs = list(zip(own, right, strict=True))
            lines[way] |= {"lost": pairs.count((1, 0)), "won": pairs.count((0, 1))}
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("allocators", nargs="*", help="NAME=FOLDER; the folder `bundled` is the bundled one")
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--questions", type=int, default=5, help="of a page")
    parser.add_argument("--size", type=int, default=1024, help="side of a page in px")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--join", type=Path, nargs="+", default=[], help="results of parts")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.join:
        results = [json.loads(path.read_text(encoding="utf-8")) for path in arguments.join]
        rows = [item for result in results for item in result["answers"].items()]
    else:
        allocators = dict(name.split("=", 1) for name in arguments.allocators)
        part, parts = map(int, arguments.part.split("/"))
        pairs = range(arguments.pages // 2)[part - 1 :: parts]
        numbers = [2 * pair + one for pair in pairs for one in (0, 1)]
        rows = answers(allocators, numbers, arguments.questions, arguments.size)
    answered: dict[str, Answers] = defaultdict(lambda: defaultdict(list))
    for kind, right in rows:
        for way, values in right.items():
            answered[kind][way] += values
    result = {kind: summary(ways) for kind, ways in answered.items()}
    print(json.dumps(result, indent=1))
    arguments.out.write_text(json.dumps(result | {"answers": answered}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
