"""Evaluation: methods x budgets x questions in one run on one model.

summary = evaluate(Settings(out=Path("bundled"), questions=200, budgets=(64,)))
"""

from __future__ import annotations

from arr_coc_lab.evaluate.methods import METHODS
from arr_coc_lab.evaluate.run import Settings, evaluate
from arr_coc_lab.rivals.method import Method

__all__ = ["METHODS", "Method", "Settings", "evaluate"]
