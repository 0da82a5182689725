"""Drop visual tokens from an unpatched transformers model."""

from __future__ import annotations

from arr_coc.seam.assembly import (
    GESTALT,
    PAD,
    PROMPT_NAMES,
    Compacted,
    Grid,
    Layout,
    VisualFeatures,
    compact_columns,
    gather_columns,
    kept_columns,
)
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.loaded import BaseProperties, plain_model

__all__ = [
    "PROMPT_NAMES",
    "GESTALT",
    "PAD",
    "BaseProperties",
    "Compacted",
    "FamilyAdapter",
    "Grid",
    "Layout",
    "VisualFeatures",
    "compact_columns",
    "gather_columns",
    "kept_columns",
    "plain_model",
]
