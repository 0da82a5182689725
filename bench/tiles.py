"""How many tiles or crops are encoded: those that hold a cell which the guide chooses.

    python bench/tiles.py --out bench/results/tiles.json
    python bench/tiles.py --layout llava --pages 8 --out bench/results/crops.json

InternVL's tiling in mode "sparse": pictures of 4 x 3 tiles of 448 px, 16 x 16 cells each, and the view of the
whole, which is always encoded. LLaVA's finer crops in mode "saccade": 3 x 3 of 336 px, 24 x 24 cells each,
and that view. Drawn pages and their questions; beside the guide's cells as many random ones.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arr_coc import __version__
from arr_coc.selector import Selector
from arr_coc_lab.world import draw_page


class Tiling(NamedTuple):
    """Rows and columns of tiles, cells along each side of one, its px, and the budgets to try."""

    rows: int
    columns: int
    side: int
    px: int
    budgets: tuple[int | float, ...]


LAYOUTS = {
    "internvl": Tiling(3, 4, 16, 448, (64, 0.05, 0.1, 0.25, 0.5)),
    "llava": Tiling(3, 3, 24, 336, (64, 273, 0.25)),
}
QUESTIONS = 3
"""Of each page."""


def tiles(cells: Tensor, tiling: Tiling) -> int:
    """How many tiles hold one of some cells [K], raster indices."""
    side, width = tiling.side, tiling.columns * tiling.side
    return len((cells // width // side * tiling.columns + cells % width // side).unique())


def run(pages: int, tiling: Tiling) -> dict[str, Any]:
    """Choose, and count."""
    rows_of, columns, side, px, budgets = tiling
    selector, draws = Selector(), torch.Generator().manual_seed(0)
    grid = (rows_of * side, columns * side)
    counts: dict[str, dict[str, list[int]]] = {str(budget): {"guide": [], "random": []} for budget in budgets}
    for seed in range(pages):
        page = draw_page(seed, (columns * px, rows_of * px), "test")
        for question in page.questions[:QUESTIONS]:
            for budget in budgets:
                keep = selector(page.image, question.text, budget, grid).keep
                random = torch.randperm(grid[0] * grid[1], generator=draws)[: len(keep)]
                counts[str(budget)]["guide"].append(tiles(keep, tiling))
                counts[str(budget)]["random"].append(tiles(random, tiling))
    questions = len(counts[str(budgets[0])]["guide"])
    rows: list[dict[str, Any]] = []
    for budget in budgets:
        means = {name: sum(some) / questions for name, some in counts[str(budget)].items()}
        share = (means["guide"] + 1) / (rows_of * columns + 1)
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
        "tiles": rows_of * columns,
        "cells": grid[0] * grid[1],
        "rows": rows,
        "versions": versions,
    }


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layout", choices=LAYOUTS, default="internvl")
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    text = json.dumps(run(options.pages, LAYOUTS[options.layout]), indent=1) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
