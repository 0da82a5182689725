"""How many tiles mode "sparse" encodes in a family in tiles: those that hold a cell which the guide chooses.

    python bench/tiles.py --out bench/results/tiles.json

InternVL's tiling: pictures of 4 x 3 tiles of 448 px, 16 x 16 cells each, and the view of the whole, which is
always encoded. Drawn pages and their questions; beside the guide's cells as many random ones.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from arr_coc import __version__
from arr_coc.core.selector import Selector
from arr_coc.world import draw_page

ROWS, COLUMNS, SIDE, TILE = 3, 4, 16, 448
BUDGETS = (64, 0.05, 0.1, 0.25, 0.5)
QUESTIONS = 3
"""Of each page."""


def tiles(cells: Tensor) -> int:
    """How many tiles hold one of some cells [K], raster indices."""
    width = COLUMNS * SIDE
    return len((cells // width // SIDE * COLUMNS + cells % width // SIDE).unique())


def run(pages: int) -> dict[str, Any]:
    """Choose, and count."""
    selector, draws = Selector(), torch.Generator().manual_seed(0)
    grid = (ROWS * SIDE, COLUMNS * SIDE)
    counts: dict[str, dict[str, list[int]]] = {str(budget): {"guide": [], "random": []} for budget in BUDGETS}
    for seed in range(pages):
        page = draw_page(seed, (COLUMNS * TILE, ROWS * TILE), "test")
        for question in page.questions[:QUESTIONS]:
            for budget in BUDGETS:
                keep = selector(page.image, question.text, budget, grid).keep
                random = torch.randperm(grid[0] * grid[1], generator=draws)[: len(keep)]
                counts[str(budget)]["guide"].append(tiles(keep))
                counts[str(budget)]["random"].append(tiles(random))
    questions = len(counts[str(BUDGETS[0])]["guide"])
    rows: list[dict[str, Any]] = []
    for budget in BUDGETS:
        means = {name: sum(some) / questions for name, some in counts[str(budget)].items()}
        share = (means["guide"] + 1) / (ROWS * COLUMNS + 1)
        rows.append(
            {
                "budget": budget,
                **{f"{name} tiles": round(mean, 2) for name, mean in means.items()},
                "share of the encoder": round(share, 3),
            }
        )
    versions = {"python": platform.python_version(), "torch": torch.__version__, "arr-coc": __version__}
    return {
        "pages": pages,
        "questions": questions,
        "tiles": ROWS * COLUMNS,
        "cells": grid[0] * grid[1],
        "rows": rows,
        "versions": versions,
    }


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    text = json.dumps(run(options.pages), indent=1) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
