"""A summary of a measurement on clips: means with intervals as JSON, and their table in markdown.

summary = summarise(scored, reference="arr-coc")
summary["methods"]["evs"]["25 %"]     {"recall": 0.61, "recall interval": [0.55, 0.67], "whole": 0.4, ...}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from arr_coc.files.atomic import write_atomic
from arr_coc_lab.evaluate.clips import COVERED, READ, ScoredClip
from arr_coc_lab.results.intervals import bootstrap_interval
from arr_coc_lab.results.kinds import KINDS, Kind
from arr_coc_lab.results.table import markdown, points
from arr_coc_lab.rivals.clips import CLIP_METHODS

FIGURES = ("recall", "whole", "strict")


def summarise(
    scored: Sequence[ScoredClip],
    reference: str | None = None,
    kinds: Mapping[str, Kind] | None = None,
    draws: int = 2000,
) -> dict[str, Any]:
    """Return every figure that the table shows, ready for JSON.

    With a `reference` method, how far every other one is behind it is added, over the same clips. `kinds` are
    those of methods outside `CLIP_METHODS` ("ours" by default); `draws` are of the bootstrap.

    Raises:
        ValueError: no question has evidence, or the reference was not measured.
    """
    pointed = [one for one in scored if one.kept]
    if not pointed:
        raise ValueError(f"none of {len(scored)} questions has evidence: there is nothing to measure")
    names = list(pointed[0].kept)
    if reference is not None and reference not in names:
        raise ValueError(f"reference {reference!r} was not measured: use one of {', '.join(names)}")
    methods: dict[str, dict[str, Any]] = {name: {} for name in names}
    for name in names:
        for label in pointed[0].kept[name]:
            figures = _figures(pointed, name, label, draws)
            if reference is not None and name != reference:
                figures |= _differences(pointed, name, reference, label, draws)
            methods[name][label] = figures
    return {
        "clips": len({one.clip for one in pointed}),
        "questions": len(pointed),
        "questions without evidence": len(scored) - len(pointed),
        "budgets": list(pointed[0].kept[names[0]]),
        "reference": reference,
        "described": {name: described(name, kinds or {}) for name in names},
        "methods": methods,
    }


def described(name: str, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Return a method's kind and label; if in `CLIP_METHODS` also what it reads, when it chooses and its
    paper.
    """
    method = CLIP_METHODS.get(name.removesuffix(f", {COVERED}").removesuffix(f", {READ}"))
    if method is None:
        return {"kind": kinds.get(name, "ours"), "label": name}
    return {
        "kind": method.kind,
        "label": name.replace(method.name, method.label, 1),
        "stage": method.stage,
        "needs": sorted(method.needs),
        "by question": method.by_question,
        "paper": method.paper,
        "title": method.title,
    }


def by_clip(scored: Sequence[ScoredClip], name: str, label: str, figure: str) -> dict[str, float]:
    """Return the mean of a figure over the questions of each clip."""
    values: dict[str, list[float]] = {}
    for one in scored:
        values.setdefault(one.clip, []).append(getattr(one.kept[name][label], figure))
    return {clip: fmean(each) for clip, each in values.items()}


def _figures(scored: Sequence[ScoredClip], name: str, label: str, draws: int) -> dict[str, Any]:
    """Means of a method at a budget, their intervals, and the means of each kind of question."""
    figures: dict[str, Any] = {}
    for figure in FIGURES:
        values = list(by_clip(scored, name, label, figure).values())  # a clip counts once
        figures[figure] = fmean(values)
        figures[f"{figure} interval"] = list(bootstrap_interval(values, draws=draws))
    for figure in ("tokens", "steps"):
        figures[figure] = fmean(by_clip(scored, name, label, figure).values())
    figures["kinds"] = {}
    for kind in sorted({one.kind for one in scored}):
        part = [one for one in scored if one.kind == kind]
        means = {figure: fmean(by_clip(part, name, label, figure).values()) for figure in FIGURES}
        figures["kinds"][kind] = {"questions": len(part), **means}
    return figures


def _differences(
    scored: Sequence[ScoredClip], name: str, reference: str, label: str, draws: int
) -> dict[str, Any]:
    """By how much the reference is above a method, clip by clip."""
    result = {}
    for figure in FIGURES:
        own, other = (by_clip(scored, each, label, figure) for each in (name, reference))
        gaps = [other[clip] - own[clip] for clip in own]  # paired: the same clips
        result[f"{figure} behind"] = fmean(gaps)
        result[f"{figure} behind interval"] = list(bootstrap_interval(gaps, draws=draws))
    return result


def table(summary: Mapping[str, Any], figures: Sequence[str] = ("recall", "whole"), kind: str = "") -> str:
    """Return a markdown table: a row per method in order of kinds, ours in bold, percent with intervals.

    With a `kind` of question the table shows that alone, without intervals.

    Raises:
        ValueError: a figure or a kind of question that the summary does not have.
    """
    for figure in figures:
        if figure not in FIGURES:
            raise ValueError(f"figure {figure!r} is unknown: use some of {', '.join(FIGURES)}")
    described = summary["described"]
    order = sorted(summary["methods"], key=lambda name: KINDS.index(described[name]["kind"]))
    rows = []
    for name in order:
        ours = described[name]["kind"] == "ours"
        cells = [f"**{name}**" if ours else name]
        for label in summary["budgets"]:
            values = summary["methods"][name][label]
            if kind and kind not in values["kinds"]:
                have = ", ".join(values["kinds"])
                raise ValueError(f"kind {kind!r} was not measured: use one of {have}")
            for figure in figures:
                text = points(values["kinds"][kind][figure] if kind else values[figure])
                if not kind:
                    text += " ({}-{})".format(*map(points, values[f"{figure} interval"]))
                cells.append(f"**{text}**" if ours else text)
        rows.append(cells)
    head = ["method", *(f"{label} {figure}" for label in summary["budgets"] for figure in figures)]
    return markdown(head, rows)


def write_summary(summary: Mapping[str, Any], path: Path) -> None:
    """Write a summary as JSON; an older file is replaced."""
    write_atomic((json.dumps(summary, indent=1) + "\n").encode(), path)
