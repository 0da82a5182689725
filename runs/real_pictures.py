"""How much of the evidence sources of relevance keep on real pictures that nobody here drew, beside nulls.

    python -m arr_coc_lab.pictures.fetch pictures
    python runs/real_pictures.py --labelled pictures --split test --name "our test split" --out runs/results/real-pictures.json
    python runs/real_pictures.py --folder FOLDER --name "the open half" --out runs/results/real-pictures.json

--folder: pictures with `questions.jsonl`, a question a line with image, kind, ask, question, answerable and boxes in px; a
test set, to which nothing may be fitted. --relevance: names of sources and sums (`docs/relevance.md`). The print is read once a
picture and kept in --cache. With --out the tables are joined to the file, each under its name.
Cost: a second of one core a picture for the guide, three for the OCR, 30 ms a question.
"""

import argparse
import platform
from pathlib import Path

import torch

from arr_coc.guide.guide import load_guide
from arr_coc.relevance.ocr import OcrSource
from arr_coc_lab.evaluate.sources import (
    BUDGETS,
    Cost,
    in_folder,
    join_table,
    labelled,
    measure,
    open_all,
    remembered,
    summarise,
)

SHOWN = (64, 128, 273)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--folder", type=Path)
    where.add_argument("--labelled", type=Path)
    parser.add_argument("--split", choices=("train", "validation", "test"), default="test")
    parser.add_argument("--name", required=True, help="of the table in the result file")
    parser.add_argument("--relevance", default="guide,ocr,guide+ocr")
    parser.add_argument("--guide", help="folder of a guide; not given: the bundled one")
    parser.add_argument("--no-nulls", action="store_true")
    parser.add_argument("--cache", type=Path, default=Path(".ocr"), help="where the print is kept")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    guide = load_guide(arguments.guide)
    ocr = OcrSource(remembered(arguments.cache)) if "ocr" in arguments.relevance else None
    sources = open_all(arguments.relevance, guide, ocr, not arguments.no_nulls)
    samples = (
        in_folder(arguments.folder) if arguments.folder else labelled(arguments.split, arguments.labelled)
    )
    costs: dict[str, Cost] = {}
    rows = list(measure(sources, samples, costs))
    table = summarise(rows)
    for group, methods in sorted(
        table.items(), key=lambda pair: -max(m["questions"] for m in pair[1].values())
    ):
        print(f"\n{group} ({next(iter(methods.values()))['questions']})")
        for method, facts in methods.items():
            cells = [f"{facts[str(b)]['recall']:.3f} ({facts[str(b)]['whole']:.0%})" for b in SHOWN]
            told = [f"AUC {facts['auc']:.2f}"] if "auc" in facts else []
            told += [f"elsewhere {facts['auc elsewhere']:.2f}"] if "auc elsewhere" in facts else []
            print(f"  {method:28}", *cells, *told)
    if arguments.out:
        facts = {
            "pictures": len({row.picture for row in rows}),
            "questions": len({(row.picture, row.question) for row in rows if not row.elsewhere}),
            "questions of another picture": len({row[1:5] for row in rows if row.elsewhere}),
            "guide": guide.version,
            "budgets of 1,024": list(BUDGETS),
            "machine": {"processor": platform.processor() or platform.machine(), "threads": 1},
            "cost": {name: cost.summary() for name, cost in costs.items()},
            "tables": table,
        }
        join_table(arguments.out, arguments.name, facts)


if __name__ == "__main__":
    main()
