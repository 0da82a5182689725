"""Tables of a summary under the name that they had before the package `arr_coc.results`."""

from __future__ import annotations

from arr_coc.results.table import markdown, percent, points, table

__all__ = ["markdown", "percent", "points", "table"]
