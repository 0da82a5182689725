"""Measuring: methods x budgets x questions in one run on one model.

    summary = evaluate(Settings(out=Path("bundled"), questions=200, budgets=(64,)))

`run` asks and writes one line per question; `methods` are what is compared, over the `view` of an image;
`results`, `summary` and `plot` go from that file to figures, tables and the picture.
"""

from __future__ import annotations

from arr_coc_lab.evaluate.methods import METHODS
from arr_coc_lab.evaluate.run import Settings, evaluate
from arr_coc_lab.rivals.method import Method

__all__ = ["METHODS", "Method", "Settings", "evaluate"]
