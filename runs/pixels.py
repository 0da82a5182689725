"""Whether a reader that nobody here taught (RapidOCR) finds the answers on what `arr_coc.pixels` packs,
beside nulls.

    python runs/pixels.py --folder FOLDER --name "the open half" --out packed.json
    python runs/pixels.py --labelled pictures --split test --name "our test split" --out packed.json
    python runs/pixels.py --rendered test-pages --name "rendered pages" --out packed.json
    python runs/pixels.py --folder FOLDER --seen 576 --budgets 64,128,256,529 --name "shrunk" --out packed.json

Budgets are of 1,024 tokens of 32 x 32 px, scaled to each picture; with --seen N they are counts, and the
reader sees whole pictures as an engine that allows N tokens shrinks them, while crops come from the original.
The print of --folder and --labelled is read anew wherever what is sent differs. With --out the table is
joined to the file under its name. Questions whose answer the reader doesn't find on the whole picture are
left out. Cost: about a second of one core for each question, method and budget.
"""

import argparse
import platform
import random
from pathlib import Path

import torch
from tqdm import tqdm

from arr_coc.relevance.ocr import rapid_ocr
from arr_coc.selector import Selector
from arr_coc_lab.evaluate.packed import (
    PACKERS,
    AnsweredPicture,
    answered_in_folder,
    answered_labelled,
    answered_rendered,
    read_packed,
    summarise_packed,
)
from arr_coc_lab.evaluate.sources import join_table


def some(samples: list[AnsweredPicture], questions: int) -> list[AnsweredPicture]:
    """So many questions at most, evenly drawn from all pictures."""
    every = [(number, place) for number, one in enumerate(samples) for place in range(len(one.questions))]
    drawn = set(random.Random(0).sample(every, min(questions, len(every))))
    kept = []
    for number, one in enumerate(samples):
        own = tuple(q for place, q in enumerate(one.questions) if (number, place) in drawn)
        if own:
            kept.append(AnsweredPicture(one.name, one.kind, one.image, own))
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--folder", type=Path)
    where.add_argument("--labelled", type=Path)
    where.add_argument("--rendered", type=Path)
    parser.add_argument("--split", choices=("train", "validation", "test"), default="test")
    parser.add_argument("--name", required=True, help="of the table in the result file")
    parser.add_argument("--budgets", default="32,64,128,256")
    parser.add_argument("--methods", default=",".join(PACKERS))
    parser.add_argument("--questions", type=int, default=150, help="at most, of all pictures")
    parser.add_argument("--relevance", default="guide")
    parser.add_argument("--seen", type=int, help="tokens to which an engine shrinks a whole picture")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if arguments.folder:
        samples = answered_in_folder(arguments.folder)
    elif arguments.labelled:
        samples = answered_labelled(arguments.split, arguments.labelled)
    else:
        samples = answered_rendered(arguments.rendered, arguments.split, 64, 6)
    packers = {name: PACKERS[name] for name in arguments.methods.split(",")}
    budgets = [int(budget) for budget in arguments.budgets.split(",")]
    selector = Selector(relevance=arguments.relevance)
    tried = some(list(samples), arguments.questions)
    rows = list(read_packed(tqdm(tried), packers, budgets, rapid_ocr(), selector, arguments.seen))
    if not rows:
        raise SystemExit("the reader finds no printed answer on these pictures: nothing was measured")
    table = summarise_packed(rows)
    for group, methods in table.items():
        print(group)
        for method, by_budget in methods.items():
            cells = "  ".join(f"{budget}: {facts['read']:.3f}" for budget, facts in by_budget.items())
            print(f"  {method:26s} {cells}")
    if arguments.out:
        facts = {
            "questions tried": sum(len(sample.questions) for sample in tried),
            "questions": len({(row.picture, row.question) for row in rows}),
            "reader": "RapidOCR (rapidocr of PyPI, PP-OCR models of its wheel)",
            "guide": selector.guide.version,
            "relevance": arguments.relevance,
            "seen": arguments.seen,
            "machine": {"processor": platform.processor() or platform.machine(), "threads": 1},
            "groups": table,
        }
        join_table(arguments.out, arguments.name, facts)


if __name__ == "__main__":
    main()
