"""Summaries of result files, with the families of the drawn world in its own order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arr_coc_lab.results import summary as results
from arr_coc_lab.results.files import Record
from arr_coc_lab.results.kinds import kind
from arr_coc_lab.results.summary import Summary
from arr_coc_lab.world.vocabulary import FAMILIES

__all__ = ["kind", "read_summary", "summarise"]


def summarise(header: dict[str, Any], records: Sequence[Record], vtc_filter: bool = False) -> Summary:
    """Return every figure that tables and plots show; see `arr_coc_lab.results.summary.summarise`."""
    return results.summarise(header, records, FAMILIES, vtc_filter)


def read_summary(path: Path, vtc_filter: bool = False) -> Summary:
    """Return the summary of a result file; see `arr_coc_lab.results.summary.read_summary`."""
    return results.read_summary(path, FAMILIES, vtc_filter)
