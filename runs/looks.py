"""Looking again and the order of cells: what each is worth on drawn pages.

    python runs/looks.py runs/results/looks.json [--questions 40]

    again   mode "saccade" with few saccades, then with those that `looks=2` and `looks=3` add; and, of as many cells as
            two looks came to in each question, one look that had them from the start
    order   raster order against the most relevant first: modes "sparse" with its LoRA and without any, and "prune"
            (stock weights), 64 and 273 cells; the difference is relevance - raster, [low, high] a paired bootstrap of 95 %

Questions of `world_questions`, split "test", 1024 x 1024 px, families in turn. For `again` those alone that need more than
one place: a count, which is larger, which is further left, whether there is one. Exact match of the bundled model.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from tqdm import tqdm

from arr_coc.data.metrics import exact_match
from arr_coc.model import ARRCOCModel
from arr_coc.seam.lora import LoRAs
from arr_coc_lab.evaluate.questions import world_questions
from arr_coc_lab.results.intervals import bootstrap_interval, paired_interval

SEVERAL = ("count", "larger", "left", "presence")
FEW = (8, 24)
"""Saccades of the first look."""
BUDGETS = (64, 273)


def right(answer, query):
    """Letter by letter."""
    return exact_match(answer.text, query.answers)


def share(values):
    """A mean with its interval."""
    low, high = bootstrap_interval(values)
    return {"exact": round(fmean(values), 3), "interval": [round(low, 3), round(high, 3)]}


def again_rows(model, questions):
    """Looking again, by the number of saccades of the first look."""
    rows = {few: defaultdict(list) for few in FEW}
    images = list(world_questions(4 * questions, 1024, 12))
    left = questions
    for image in tqdm(images, "again"):
        queries = [query for query in image.queries if query.family in SEVERAL][:left]
        left -= len(queries)
        if not queries:
            continue
        session = model.session(image.image)
        for query in queries:
            for few, row in rows.items():
                one = session.ask(query.text, mode="saccade", budget=few)
                two = session.ask(query.text, mode="saccade", budget=few, looks=2)
                three = session.ask(query.text, mode="saccade", budget=few, looks=3)
                as_many = session.ask(query.text, mode="saccade", budget=two.kept)
                for name, answer in (
                    ("one", one),
                    ("two", two),
                    ("three", three),
                    ("one, as many cells", as_many),
                ):
                    row[name].append((right(answer, query), answer.kept, answer.looks))
    return {
        str(few): {
            "questions": len(row["one"]),
            "looked again": round(fmean(looks > 1 for _, _, looks in row["two"]), 3),
            "answers that changed from wrong to right": sum(
                b > a for (a, *_), (b, *_) in zip(row["one"], row["two"], strict=True)
            ),
            "from right to wrong": sum(
                b < a for (a, *_), (b, *_) in zip(row["one"], row["two"], strict=True)
            ),
            **{
                name: share([score for score, _, _ in some])
                | {"cells": round(fmean(kept for _, kept, _ in some), 1)}
                for name, some in row.items()
            },
        }
        for few, row in rows.items()
    }


def order_rows(model, plain, questions):
    """Raster against relevance order, by mode and budget."""
    rows = defaultdict(lambda: defaultdict(list))
    for image in tqdm(list(world_questions(questions, 1024, 8)), "order"):
        trained, stock = model.session(image.image), plain.session(image.image)
        for query in image.queries:
            for name, session, mode in (
                ("sparse, with its LoRA", trained, "sparse"),
                ("sparse, without", stock, "sparse"),
                ("prune", trained, "prune"),
            ):
                for budget in BUDGETS:
                    for order in ("raster", "relevance"):
                        answer = session.ask(query.text, mode=mode, budget=budget, order=order)
                        rows[f"{name}@{budget}"][order].append(right(answer, query))
    return {
        name: {
            "questions": len(row["raster"]),
            **{order: round(fmean(values), 3) for order, values in row.items()},
            "difference": [round(x, 3) for x in paired_interval(row["relevance"], row["raster"])],
        }
        for name, row in rows.items()
    }


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("out", type=Path)
parser.add_argument("--questions", type=int, default=40)
parser.add_argument("--parts", default="again,order")
args = parser.parse_args()

start = time.time()
model = ARRCOCModel.from_pretrained(strict=True)
plain = ARRCOCModel.wrap(model)
plain.loras = LoRAs(plain.base)
result = json.loads(args.out.read_text()) if args.out.is_file() else {}
for part in args.parts.split(","):
    rows = again_rows(model, args.questions) if part == "again" else order_rows(model, plain, args.questions)
    result[part] = {
        "command": f"python runs/looks.py {args.out} --questions {args.questions} --parts {part}",
        "minutes": round((time.time() - start) / 60, 1),
        "rows": rows,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result[part], indent=1))
