"""What favours choosing by evidence on these pages: how little of a page is ever asked about, and what the reader knows.

    python runs/evidence.py runs/results/evidence.json [--questions 2000]

    cells that hold evidence    of some question that a page could be asked (not those alone that were)
    blind                       share of questions with all of their evidence among the k cells of one near-best choice for
                                all of a page's questions (`blind_oracle`), of those that could be asked and that were
    reader                      share of training pages on which the bundled base model was shown some of the cells, all
                                evidence among them, in place of all (`making/together.py`)

The pages and questions are those of runs/results/study.json. No model runs; about two minutes on one core.
"""

import argparse
import inspect
import json
import sys
from pathlib import Path
from statistics import fmean

import torch

from arr_coc.data.evidence import evidence_cells
from arr_coc_lab.evaluate.questions import world_questions
from arr_coc_lab.rivals import blind_oracle

sys.path.insert(0, str(Path(__file__).parents[1]))  # how the model was made lies beside the package

from making.together import AskedPages
from making.words import build_tokenizer

SIDE, BUDGETS, STEPS = 1024, (64, 128, 273), 200


def whole(masks, keep):
    """By question, whether all of its evidence is among the kept cells."""
    kept = torch.zeros(masks[0].numel(), dtype=torch.bool)
    kept[keep] = True
    return [bool(kept[mask.flatten()].all()) for mask in masks]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("out", type=Path)
parser.add_argument("--questions", type=int, default=2000)
args = parser.parse_args()

cells, questions = [], []
could: dict[int, list[bool]] = {k: [] for k in BUDGETS}
were: dict[int, list[bool]] = {k: [] for k in BUDGETS}
for page in world_questions(args.questions, SIDE, 8):
    grid, size = (SIDE // 32, SIDE // 32), page.image.size
    masks = [evidence_cells(boxes, grid, size) for boxes in page.possible if boxes]
    asked = [evidence_cells(query.boxes, grid, size) for query in page.queries if query.boxes]
    if not asked:  # a page of texture alone
        continue
    cells.append(int(torch.stack(masks).any(0).sum()))
    questions.append(len(masks))
    for k in BUDGETS:
        keep = blind_oracle(masks, k).keep
        could[k] += whole(masks, keep)
        were[k] += whole(asked, keep)

taught = AskedPages(build_tokenizer(), [256], 64, 0, STEPS)
some = [not bool(taught[step]["kept"].all()) for step in range(STEPS)]
result = {
    "command": "python runs/evidence.py runs/results/evidence.json",
    "pages": len(cells),
    "questions a page could be asked": round(fmean(questions), 1),
    "cells that hold evidence": {
        "of": grid[0] * grid[1], "mean": round(fmean(cells), 1), "most": max(cells),
    },
    "blind, of those that could be asked": {str(k): round(fmean(v), 3) for k, v in could.items()},
    "blind, of those that were asked": {str(k): round(fmean(v), 3) for k, v in were.items()},
    "reader": {
        "share set": inspect.signature(AskedPages.__init__).parameters["drop"].default,
        "share drawn": round(fmean(some), 3),
        "pages drawn": STEPS,
    },
}  # fmt: skip
args.out.write_text(json.dumps(result, indent=1) + "\n")
print(json.dumps(result, indent=1))
