"""The project's targets, checked against a summary: what is claimed, what was measured, and whether it holds.

    claims(summary) -> [{claim, figure, target, holds}, ...];  claims_table(claims) -> markdown
    python runs/claims.py RESULT...       their tables

Laws: a claim reads the summary alone; what was not measured holds neither nor fails: it is None. Claims about
choosing before the encoder are made only where a file has the rows for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from arr_coc_lab.evaluate import METHODS
from arr_coc_lab.results.kinds import DOWNSAMPLE, FULL, OURS, SACCADE, SPARSE, kind
from arr_coc_lab.results.summary import Figures, Summary, by_budget, read_summary
from arr_coc_lab.results.table import markdown, percent, points

QUERY_BLIND = tuple(
    name for name, method in METHODS.items() if method.kind == "rival" and not method.by_question
)
"""The rivals that never read the question."""


def claims(summary: Summary) -> list[dict[str, Any]]:
    """The targets of the project, checked.

    A rival or null at 273 tokens is either below ours beyond its paired interval, or tied with it at the
    ceiling: its interval holds the score of full, and ours is not beyond it the other way.

    Returns:
        {"claim", "figure", "target", "holds"} each; "holds" is None, and the figure "not measured", where
        the summary lacks something.
    """
    methods = summary["methods"]

    def row(method: str) -> Figures:
        return methods.get(method, {})

    checked = [
        _at_least(
            f"{OURS}@{budget} keeps the score of all tokens", row(f"{OURS}@{budget}").get("retained"), x
        )
        for budget, x in ((273, 0.99), (128, 0.98), (64, 0.96))
    ]
    auto = row(f"{OURS}@auto")
    checked.append(_at_least(f"{OURS}@auto keeps the score of all tokens", auto.get("retained"), 0.99))
    tokens = auto.get("tokens")
    checked.append(
        {
            "claim": f"{OURS}@auto reads few tokens",
            "figure": "not measured" if tokens is None else f"{tokens:.0f}",
            "target": "at most 150",
            "holds": None if tokens is None else tokens <= 150,
        }
    )
    blind = [f"{name}@64" for name in QUERY_BLIND if _gap(row(f"{name}@64")) is not None]
    best = max(blind, key=lambda method: methods[method]["score"], default=None)
    named = "" if best is None else f", {best}"
    rivals = (
        (f"{OURS}@64 is above the best query-blind rival{named}", best, 0.15),
        (f"{OURS}@64 is above the image shrunk to 64 tokens", "downsample@64", 0.15),
        (f"{OURS}@64 is worse with another image's question", "shuffled question@64", 0.25),
    )
    checked += [
        _at_least(text, _gap(row(method or "")), least, points, " points") for text, method, least in rivals
    ]
    kept = [
        m
        for m in by_budget(summary).get("64", [])
        if kind(m, summary["header"]) == "rival" and _gap(row(m)) is not None
    ]
    if kept:  # also those that read more of the image before they drop it
        best = max(kept, key=lambda method: methods[method]["score"])
        text = f"{OURS}@64 is not below the best rival that keeps as many, {best}"
        checked.append(_at_least(text, _gap(row(best)), 0.0, points, " points"))
    checked.append(_at_least(f"{OURS}@64 keeps the evidence cells", row(f"{OURS}@64").get("recall"), 0.95))
    others = [m for m in by_budget(summary).get("273", []) if kind(m, summary["header"]) in ("rival", "null")]
    return checked + early_claims(summary) + [_below_or_tied(method, summary) for method in others]


def early_claims(summary: Summary) -> list[dict[str, Any]]:
    """The targets of choosing before the encoder, as far as there are rows for them.

    Sparse encoding is checked on pages of 1024 px; gestalt and saccades on pages of 2048 px, beside the image
    shrunk to as many tokens: only where that loses small print is there something to win by them.
    """
    methods, size = summary["methods"], summary["header"].get("size")
    if size == 1024:
        return [
            _at_least(f"{method} keeps the score of all tokens", methods[method]["retained"], least)
            for method, least in ((f"{SPARSE}@273", 0.98), (f"{SPARSE}@64", 0.94))
            if method in methods
        ]
    shrunk = f"{DOWNSAMPLE}@529"
    if size != 2048 or not {SACCADE, shrunk, FULL} <= methods.keys():
        return []
    small = [methods[method]["families"].get("small", {}).get("score") for method in (FULL, shrunk)]
    lost = None if None in small else round(small[0] - small[1], 4)
    return [
        _at_least(f"{SACCADE} keeps the score of all tokens", methods[SACCADE]["retained"], 0.98),
        _at_least(f"{shrunk} loses small print", lost, 0.10, points, " points"),
    ]


def _gap(row: Figures) -> float | None:
    return row["below ours"]["mean"] if row.get("below ours") else None


def _at_least(
    claim: str, figure: float | None, least: float, form: Callable[[float], str] = percent, unit: str = ""
) -> dict[str, Any]:
    return {
        "claim": claim,
        "figure": "not measured" if figure is None else form(figure) + unit,
        "target": f"at least {form(least)}{unit}",
        "holds": None if figure is None else figure >= least,
    }


def _below_or_tied(method: str, summary: Summary) -> dict[str, Any]:
    row, full = summary["methods"][method], summary["methods"].get(FULL)
    gap = row["below ours"]
    figure, holds = "not measured", None
    if gap is not None:
        low, high = gap["interval"]
        figure = f"ours {100 * gap['mean']:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
        at_ceiling = full is not None and row["interval"][0] <= full["score"] <= row["interval"][1]
        holds = low > 0 or (at_ceiling and high >= 0)
        if holds and low <= 0:
            figure = f"tied, {figure}"
    target = "beyond its interval, or tied at the ceiling"
    return {"claim": f"{method} is below {OURS}@273", "figure": figure, "target": target, "holds": holds}


def claims_table(claims: Sequence[dict[str, Any]]) -> str:
    """The targets and what was measured, one row each, as markdown."""
    holds = {True: "yes", False: "**no**", None: "-"}
    lines = ((c["claim"], c["target"], c["figure"], holds[c["holds"]]) for c in claims)
    return markdown(["claim", "target", "measured", "holds"], lines)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(claims_table(claims(read_summary(Path(name)))), end="\n\n")
