"""The families of models that arr-coc reads: rows of `table`, and a file of adapters for each layout."""

from __future__ import annotations

from arr_coc.families.generic import GenericAdapter
from arr_coc.families.qwen import Qwen2_5VLAdapter, Qwen3VLAdapter
from arr_coc.families.registry import (
    FAMILIES,
    Family,
    adapter_for,
    add_family,
    check_model_type,
    known_families,
    register_family,
)
from arr_coc.families.table import TABLE

for row in TABLE:
    add_family(row)

__all__ = [
    "FAMILIES",
    "Family",
    "GenericAdapter",
    "Qwen2_5VLAdapter",
    "Qwen3VLAdapter",
    "adapter_for",
    "check_model_type",
    "known_families",
    "register_family",
]
