"""Result files of evaluations: their format, summaries and tables. Nothing here runs a model.

header, records = read_results("study.jsonl.gz")
summary = read_summary(Path("study.json"))
print(table(summary, "budgets"))
"""

from __future__ import annotations

from arr_coc_lab.results.files import append_results, join_results, read_results, write_results
from arr_coc_lab.results.kinds import kind, split_method
from arr_coc_lab.results.summary import by_budget, read_summary, summarise
from arr_coc_lab.results.table import table

__all__ = [
    "append_results", "join_results", "read_results", "write_results",
    "kind", "split_method", "by_budget", "read_summary", "summarise", "table",
]  # fmt: skip
