"""Fits what the guide's verdicts are worth, on validation pages: the constants of `attending` and `trust`.

    arr-coc world validation-pages --split validation --pages 150 --documents 90
    python runs/guide_calibration.py validation-pages --out runs/results/guide-calibration.json

Presence: how well its logit tells questions with an answer from those without (`guide_matches.py` fits it). "auto": of all settings of `budget.enough_cells` the one that spends fewest cells while all evidence is kept of
95 % of the questions. Trust: recall of the guide alone beside that of the whole selector, by confidence.
"""

import argparse
import json
import sys
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose import budget as rule
from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.coupling import couple, view
from arr_coc.guide.guide import load_guide
from arr_coc.selector import Selector
from arr_coc_lab.evaluate.guide import auc
from arr_coc_lab.evaluate.guide_pages import page_samples

sys.path.insert(0, str(Path(__file__).parent))  # also where this is not the script that runs
from guide import load

WHOLE = 0.95
"""Share of questions of which "auto" is to keep all evidence."""
SETTINGS = tuple(product((0.5, 0.75, 1.0, 1.5), (0.8, 0.9, 0.95, 0.98, 0.99), (1.0, 1.25, 1.5, 2.0, 3.0)))
BUDGETS = (64, 273)
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def spent(maps: list[Tensor], sharpness: float, enough: float, margin: float) -> list[float]:
    """What "auto" spends on each map under some settings."""
    rule.AUTO_SHARPNESS, rule.AUTO_MASS, rule.AUTO_MARGIN = sharpness, enough, margin
    return [
        float(rule.count_cells("auto", one.flatten()[None], needed=rule.enough_cells(one[None]))[0])
        for one in maps
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", type=Path)
    parser.add_argument("--split", default="validation")
    parser.add_argument("--questions", type=int, default=4, help="of a page")
    parser.add_argument("--limit", type=int, help="pages")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    guide, selector = load_guide(), Selector()
    presence: dict[bool, list[float]] = {True: [], False: []}
    maps: list[Tensor] = []
    needed: list[int] = []
    rows: list[dict[str, Any]] = []
    for sample in page_samples(arguments.pages, arguments.split, arguments.limit, arguments.questions):
        page = view(guide, sample.pixels())
        for question in sample.questions:
            coupling = couple(guide, page, question.text, sample.grid)
            if question.kind not in ("global", "anomaly"):
                logit = float(guide.judge(page, [question.text]).present)
                presence[question.kind != "unanswerable"].append(logit)
            evidence = evidence_cells(question.evidence, sample.grid, sample.padded).flatten()
            if not evidence.any():
                continue
            ranked = coupling.logits.flatten().argsort(descending=True, stable=True)
            maps.append(coupling.logits)
            needed.append(int(evidence[ranked].nonzero().max()) + 1)
            row: dict[str, Any] = {"confidence": coupling.confidence, "kind": question.kind}
            for budget in (b for b in BUDGETS if b < len(ranked)):
                own = evidence[ranked[:budget]].sum() / evidence.sum()
                kept = selector(sample.image, question.text, budget, sample.grid).mask().flatten()
                row[f"guide@{budget}"] = float(own)
                row[f"selector@{budget}"] = float(evidence[kept].sum() / evidence.sum())
            rows.append(row)
    table = []
    for settings in SETTINGS:
        cells = spent(maps, *settings)
        whole = fmean(cell >= need for cell, need in zip(cells, needed, strict=True))
        table.append({"settings": settings, "cells": fmean(cells), "whole": whole})
    good = [one for one in table if one["whole"] >= WHOLE] or sorted(table, key=lambda one: -one["whole"])[:1]
    trusted = {}
    for low, high in pairwise(BINS):
        part = [row for row in rows if low <= row["confidence"] < high or row["confidence"] == high == 1]
        names = [f"{who}@{budget}" for budget in BUDGETS for who in ("guide", "selector")]
        means = {
            name: fmean(r[name] for r in part if name in r) for name in names if any(name in r for r in part)
        }
        trusted[f"{low}-{high}"] = {"questions": len(part), **means}
    result = {
        "guide": load(None)[1],
        "presence": {
            "yes": len(presence[True]), "no": len(presence[False]), "auc": auc(presence[True], presence[False]),
        },
        "auto": {"questions": len(maps), "best": min(good, key=lambda one: one["cells"]), "all": table},
        "trust": trusted,
    }  # fmt: skip
    text = json.dumps(result, indent=1)
    print(json.dumps({**result, "auto": result["auto"]["best"]}, indent=1))
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
