"""The gain of an adaptation: results of the same questions before and after, as figures and a plot.

gain(read_results(before), read_results(after)) -> {"questions", "metric", "recall", "score"}
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arr_coc.files.atomic import write_atomic
from arr_coc_lab.results.files import ERROR, Record
from arr_coc_lab.results.intervals import paired_interval
from arr_coc_lab.results.kinds import FULL, split_method

Gain = dict[str, Any]
Results = tuple[dict[str, Any], list[Record]]  # header and records of a result file
BEFORE, AFTER = "before", "after"
# measured before and after, since training may change them
TWICE = ("arr-coc", "arr-coc sparse", "shuffled question")
# controls and a bound beside ours -> name in text, marker in the plot
BESIDE = {
    "random": ("random", "x"),
    "even grid": ("even grid", "s"),
    "ink density": ("ink", "d"),
    "shuffled question": ("another question", "X"),
    "oracle": ("oracle", "|"),
}
OVER = "over images"  # intervals resample images, each with all of its questions
FIGURES = ("recall", "score")  # share of evidence cells kept; metric of the answers


def gain(before: Results, after: Results) -> Gain:
    """Means over the held-out questions that both files have, by figure, method and budget.

    Returns:
        "questions", "images", "metric", "intervals" (what they are over); "recall" (empty without boxes) and
        "score", each {"METHOD@BUDGET": {"before", "after", "difference", "interval"}}, or "before" alone for
        methods that do not learn. All in [0, 1]; the interval is the 95 % paired bootstrap interval.

    Raises:
        ValueError: they have no question in common.
    """
    first, second = ({r["id"]: r for r in lines if ERROR not in r} for _, lines in (before, after))
    both = [name for name in first if name in second]
    if not both:
        raise ValueError("no held-out question was measured before and after: check the images of the data")
    figures: Gain = {
        "questions": len(both),
        "images": len({first[name]["image"] for name in both}),
        "metric": after[0]["metric"],
        "intervals": OVER,
    }
    for figure in FIGURES:
        labels = dict.fromkeys(label for name in both for label in first[name].get(figure, {}))
        figures[figure] = {label: _row(figure, label, both, first, second) for label in labels}
    return figures


def _row(
    figure: str, label: str, names: Sequence[str], first: dict[str, Record], second: dict[str, Record]
) -> dict[str, Any]:
    old = {name: first[name][figure][label] for name in names if label in first[name].get(figure, {})}
    row: dict[str, Any] = {BEFORE: round(float(np.mean(list(old.values()))), 4)}
    new = {name: second[name].get(figure, {}).get(label) for name in old}
    if split_method(label)[0] not in TWICE or any(value is None for value in new.values()):
        return row
    values = np.array([new[name] for name in old], dtype=float)
    low, high = paired_interval(values, list(old.values()), [first[name]["image"] for name in old])
    mean = float(values.mean())
    return row | {
        AFTER: round(mean, 4),
        "difference": round(mean - row[BEFORE], 4),
        "interval": [round(low, 4), round(high, 4)],
    }


def in_words(figures: Gain) -> list[tuple[str, str]]:
    """Return the gain in a few lines: (name, text) for each method and budget of ours."""
    rows = []
    for figure, what in (("recall", "evidence kept"), ("score", figures["metric"].replace("_", " "))):
        table = figures[figure]
        for label, row in table.items():
            name, budget = split_method(label)
            if AFTER not in row or name in BESIDE:
                continue
            low, high = row["interval"]
            others = [
                f"{prose} {table[f'{other}@{budget}'].get(AFTER, table[f'{other}@{budget}'][BEFORE]):.0%}"
                for other, (prose, _) in BESIDE.items()
                if f"{other}@{budget}" in table
            ]
            others += [f"{FULL} {table[FULL][BEFORE]:.0%}"] if FULL in table else []
            beside = f"; {', '.join(others)}" if others else ""
            text = f"{row[BEFORE]:.0%} before, {row[AFTER]:.0%} after ({low:+.0%} to {high:+.0%}){beside}"
            rows.append((f"{label}", f"{what} {text}"))
    return rows


def _ours(table: dict[str, Any]) -> list[str]:
    """Return the labels that were measured again, without controls."""
    return [label for label, row in table.items() if AFTER in row and split_method(label)[0] not in BESIDE]


def draw_gain(figures: Gain, path: Path) -> None:
    """Plot before and after, a panel for each figure, with controls and the oracle as markers."""
    from matplotlib.figure import Figure  # imported for the first time, it reads every font of the machine

    panels = [figure for figure in FIGURES if figures[figure]]
    rows = max(len(_ours(figures[figure])) for figure in panels)
    picture = Figure(figsize=(5.2 * len(panels), 1.3 + 0.55 * rows), layout="constrained")
    for axes, figure in zip(np.atleast_1d(picture.subplots(1, len(panels))), panels, strict=True):
        table = figures[figure]
        labels = _ours(table)
        for y, label in enumerate(labels):
            budget = split_method(label)[1]
            for name, (prose, mark) in BESIDE.items():
                beside = table.get(f"{name}@{budget}")
                if beside is not None:
                    axes.plot(beside.get(AFTER, beside[BEFORE]), y, mark, color="#8d8d98", label=prose)
            old, new = table[label][BEFORE], table[label][AFTER]
            arrow = {"arrowstyle": "-|>", "color": "#a3195b", "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (new, y), (old, y), arrowprops=arrow)
            axes.plot(old, y, "o", color="white", mec="#a3195b", label=BEFORE)
            axes.plot(new, y, "o", color="#a3195b", label=AFTER)
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlim(-0.03, 1.03)
        axes.set_title(
            "evidence kept" if figure == "recall" else figures["metric"].replace("_", " "),
            loc="left",
            fontsize=10,
        )
        axes.spines[["top", "right"]].set_visible(False)
        handles, names = axes.get_legend_handles_labels()
        once = dict(zip(names, handles, strict=True))
        axes.legend(once.values(), once.keys(), fontsize=7, loc="lower right", frameon=False)
    picture.suptitle(
        f"{figures['questions']:,} held-out questions about {figures['images']:,} images", fontsize=10
    )
    content = io.BytesIO()
    picture.savefig(content, dpi=130, format=path.suffix[1:])
    write_atomic(content.getvalue(), path)
