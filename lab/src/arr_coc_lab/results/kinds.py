"""Kinds of methods in a comparison: all tokens, ours, rivals, controls, bounds.

A run writes the kind of each method, called NAME or NAME@BUDGET, into its file's header (`kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

Kind = Literal["full", "ours", "variant", "coc", "rival", "null", "bound"]
"""All tokens; this package's choice; the same by another allocator; a compressed image alone; a published
method; a control that any method should beat; the choice of the evidence cells.
"""
KINDS: tuple[Kind, ...] = get_args(Kind)  # in the order of tables

FULL, OURS, DOWNSAMPLE = "full", "arr-coc", "downsample"
SPARSE, SACCADE = f"{OURS} sparse", f"{OURS} saccade"  # ours that choose before the vision encoder

# for headers without `kinds`; new methods state theirs
_UNSTATED: dict[str, Kind] = {
    FULL: "full",
    OURS: "ours",
    SPARSE: "ours",
    SACCADE: "ours",
    "random": "null",
    "even grid": "null",
    DOWNSAMPLE: "null",
    "shuffled question": "null",
    "shuffled question sparse": "null",
    "oracle": "bound",
    "oracle sparse": "bound",
}


def split_method(method: str) -> tuple[str, str]:
    """Name and budget: ("arr-coc", "64") of "arr-coc@64", ("full", "") of "full"."""
    name, _, budget = method.partition("@")
    return name, budget


def kind(method: str, header: Mapping[str, Any] | None = None) -> Kind:
    """Return the kind of a method, with or without its budget: of its file's header, or else by its name."""
    name, _ = split_method(method)
    stated = (header or {}).get("kinds")
    if isinstance(stated, dict) and stated.get(name) in KINDS:
        return stated[name]
    if name.startswith(f"{OURS}:"):
        return "variant"
    return "coc" if name.startswith("coc ") else _UNSTATED.get(name, "rival")
