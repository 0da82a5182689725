"""How much a small picture is to be enlarged before the guide encodes it: recall on labelled real pictures.

    python runs/enlarged.py PICTURES --out runs/results/enlarged.json

PICTURES is a folder that `arr_coc_lab.pictures.fetch` filled; the validation split is measured, and chosen by. Each
row is a factor and the px up to which it enlarges. Cost: some two minutes of one core a row.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import torch

from arr_coc.files.atomic import write_atomic
from arr_coc.guide import coupling
from arr_coc.guide.coupling import GuideSource
from arr_coc.guide.guide import load_guide
from arr_coc_lab.evaluate.sources import Cost, labelled, measure, summarise

ROWS = ((1.0, 1024), (1.5, 1024), (1.5, 1152), (1.5, 1280), (1.75, 1024), (2.0, 1152))
SHOWN = (64, 128, 273)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--split", choices=("train", "validation", "test"), default="validation")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    guide = load_guide()
    result: dict[str, Any] = {"guide": guide.version, "split": arguments.split, "machine": platform.machine()}
    for factor, side in ROWS:
        coupling.ENLARGED, coupling.ENLARGED_PIXELS = factor, side**2
        costs: dict[str, Cost] = {}
        samples = labelled(arguments.split, arguments.pictures)
        table = summarise(list(measure({"guide": GuideSource(guide)}, samples, costs)))["all"]["guide"]
        row = {str(budget): round(table[str(budget)]["recall"], 4) for budget in SHOWN}
        row |= {"questions": table["questions"], "auc": round(table["auc"], 4)}
        row |= {"auc elsewhere": round(table["auc elsewhere"], 4)} | costs["guide"].summary()
        result[f"{factor:g} up to {side} x {side} px"] = row
        print(factor, side, row, flush=True)
    if arguments.out:
        write_atomic((json.dumps(result, indent=1) + "\n").encode(), arguments.out)


if __name__ == "__main__":
    main()
