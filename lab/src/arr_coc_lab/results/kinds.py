"""Kinds of methods: what each is to a comparison, as result files state it.

    kind("arr-coc@64", header) -> "ours"

A run writes the kind of each of its methods into the header of its file (`kinds`), so that a file explains
itself wherever it is read. Methods are called NAME@BUDGET there, or NAME where they always spend the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

Kind = Literal["full", "ours", "variant", "coc", "rival", "null", "bound"]
"""All tokens; this package's choice; the same by another allocator; a gestalt alone; a published method; a
control that any method should beat; what the evidence cells themselves would give."""
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order of tables."""

FULL, OURS, DOWNSAMPLE = "full", "arr-coc", "downsample"
SPARSE, SACCADE = f"{OURS} sparse", f"{OURS} saccade"
"""Ours that choose before the vision encoder."""

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
"""Kinds in files of 0.1, whose headers do not state them. Closed: a new method's kind is in its file."""


def split_method(method: str) -> tuple[str, str]:
    """Name and budget of a method: ("arr-coc", "64") of "arr-coc@64", ("full", "") of "full"."""
    name, _, budget = method.partition("@")
    return name, budget


def kind(method: str, header: Mapping[str, Any] | None = None) -> Kind:
    """What a method is to the comparison.

    Args:
        method: as in a result file, with or without its budget.
        header: of that file; None, or a header of version 0.1 without `kinds`, leaves only the names of
            that version, and any other name is a rival.
    """
    name, _ = split_method(method)
    stated = (header or {}).get("kinds")
    if isinstance(stated, dict) and stated.get(name) in KINDS:
        return stated[name]
    if name.startswith(f"{OURS}:"):
        return "variant"
    return "coc" if name.startswith("coc ") else _UNSTATED.get(name, "rival")
