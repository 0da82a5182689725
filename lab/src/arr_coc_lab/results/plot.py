"""A plot of a summary: score over visual tokens, and over time to first token.

    plot(summary, "pareto.png")

A method's style is its own over that of its kind: ours thick, coarse views alone hollow, rivals thin, nulls
grey and dashed, upper bounds dotted. A hollow diamond is a budget chosen per question. The stepped ground is
the best score reached at a cost, without bounds and controls by another image's question.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from arr_coc.files.atomic import write_atomic
from arr_coc_lab.results.kinds import FULL, OURS, SACCADE, SPARSE, kind, split_method
from arr_coc_lab.results.styles import OF_OTHERS, STYLES, Style
from arr_coc_lab.results.summary import Summary

DPI = 200
_INK, _QUIET, _GRID, _GROUND = "#17171c", "#6a6a75", "#ececf0", "#f6f1e7"
_GRAY = "#8d8d98"
_OF_KIND: dict[str, dict[str, Any]] = {
    "ours": dict(lw=2.6, ms=7, mew=1.2, mec="white", zorder=6),
    "variant": dict(ms=5.5),
    "coc": dict(marker="d", lw=0, ms=6, mew=1.4, mfc="white", zorder=5),
    "rival": dict(ms=5.5),
    "null": dict(color=_GRAY, ls="--", marker="x"),
    "bound": dict(color=_INK, ls=":", marker="", zorder=4),
}
"""Style of each kind; a method's own style comes over it."""
# Muted, of different lightness, told apart with every common kind of colour blindness by marker too.
_SPARE = tuple(
    Style(colour, marker)
    for colour, marker in (
        ("#33508f", "d"), ("#117733", "8"), ("#b8860b", "*"), ("#6d5c9e", "H"), ("#4f9bc4", "o"),
    )
)  # fmt: skip
"""Styles of methods registered without one."""
_TICK = 0.25  # inches, nearer ticks are left out
_PITCH = 11.5  # points from one name to the next
_LOG = 8  # times this far apart are drawn on a logarithmic axis
_NAMES, _MARGIN = 1.5, 0.3  # inches left of the cheapest points, for names, and right of the dearest


@dataclass(frozen=True)
class _Line:
    """One method over its budgets, fewest tokens first, and how it is drawn."""

    name: str
    kind: str
    rows: list[dict[str, Any]]
    style: dict[str, Any]

    def points(self, cost: str) -> np.ndarray:
        """[n, 2], cost and score of the budgets whose cost was measured."""
        return np.array([(r[cost], r["score"]) for r in self.rows if r[cost] is not None]).reshape(-1, 2)


def plot(summary: Summary, path: str | Path, title: str | None = None) -> None:
    """Draw a summary that has a method beside the full model, as .png, .svg or .pdf by the path's ending.

    Raises:
        ValueError: there is nothing but the full model, or the format is unknown.
    """
    lines = _lines(summary)
    if not lines:
        raise ValueError("the summary has no method with a budget: evaluate one beside the full model")
    costs = ["tokens"] + ["ttft_ms"] * any(len(line.points("ttft_ms")) for line in lines)
    figure = Figure(figsize=(10 if len(costs) == 2 else 6.8, 5.2), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    grid = {"width_ratios": [1.5, 1][: len(costs)], "wspace": 0.05}
    panels = figure.subplots(1, len(costs), sharey=True, squeeze=False, gridspec_kw=grid)[0]
    left = 0.65 / figure.get_figwidth()
    figure.subplots_adjust(left=left, right=0.98, top=0.89, bottom=0.115)
    scores = [row["score"] for row in summary["methods"].values()]
    panels[0].set_ylim(max(-0.03, min(scores) - 0.06), min(1.03, max(scores) + 0.06))
    for axes, cost in zip(panels, costs, strict=True):
        _frame(axes, cost, lines, summary)
        _draw(axes, cost, lines, summary)
    panels[0].set_ylabel(summary["metric"], color=_INK, fontsize=10)
    _name(panels[0], lines)
    for line in lines:
        if _before_encoder(line.name) and len(costs) == 2 and len(line.points("ttft_ms")):
            x, y = line.points("ttft_ms")[0]
            below = -30 if line.name.startswith(SACCADE) else -16  # one may be right of the other
            _write(panels[1], line.name, (x, y), (0, below), line.style["color"], ha="left", weight="bold")
    heading = title or f"{summary['questions']:,} questions about {summary['images']:,} images"
    if summary.get("filter"):
        heading += ", those alone that downsampling fails"
    figure.text(left, 0.93, heading, fontsize=12, weight="bold", color=_INK)
    place = Path(path) if Path(path).suffix else Path(f"{path}.png")
    content = io.BytesIO()
    figure.savefig(content, format=place.suffix[1:])
    write_atomic(content.getvalue(), place)


def _lines(summary: Summary) -> list[_Line]:
    """Return all methods but the full model, ours last, so that it is drawn on top."""
    rows: dict[str, list[dict[str, Any]]] = {}
    kinds: dict[str, str] = {}
    for method, row in summary["methods"].items():
        name, budget = split_method(method)
        kinds[name] = kind(method, summary["header"])
        if kinds[name] != "full" and row["tokens"] is not None:
            rows.setdefault(name, []).append(row | {"auto": budget == "auto"})
    spare = iter(_SPARE * len(rows))
    lines = []
    for name, points in rows.items():
        style = STYLES.get(name, Style())
        if style == Style() and kinds[name] in ("rival", "variant"):
            style = next(spare)
        if kinds[name] == "variant":
            style = replace(style, colour=STYLES[OURS].colour)
        points = sorted(points, key=lambda row: row["tokens"])
        lines.append(_Line(name, kinds[name], points, _look(style, kinds[name])))
    return sorted(lines, key=lambda line: line.style["zorder"])


def _look(style: Style, of_kind: str) -> dict[str, Any]:
    """Return a line's properties for matplotlib: the method's own style over that of its kind."""
    own = dict(color=style.colour, marker=style.marker, ms=style.size, lw=style.width)
    look: dict[str, Any] = dict(color=_QUIET, lw=1.1, ms=4.5, mew=0, zorder=3, marker="o")
    look |= _OF_KIND.get(of_kind, {}) | {name: value for name, value in own.items() if value is not None}
    if look["marker"] == "x":  # drawn by its edge alone
        look["mew"] = 1
    if of_kind == "coc":
        look["mec"] = look["color"]
    return look


def _before_encoder(name: str) -> bool:
    """One of ours that chooses before the vision encoder, and so saves encoding time."""
    return name.startswith((SPARSE, SACCADE))


def _frame(axes: Axes, cost: str, lines: Sequence[_Line], summary: Summary) -> None:
    """Limits, ticks and grid of one panel."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_QUIET)
    axes.tick_params(colors=_QUIET, labelcolor=_INK, labelsize=9, left=False)
    axes.grid(color=_GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    full = summary["methods"].get(FULL, {}).get(cost)
    costs = [x for line in lines for x in line.points(cost)[:, 0]] + [full] * (full is not None)
    low, high = min(costs), max(costs)
    if cost == "ttft_ms":
        axes.set_xlabel("time to first token (ms)", color=_INK, fontsize=10)
        axes.set_xlim(0, high * 1.06)
        if low > 0 and high > _LOG * low:
            axes.set_xscale("log")
            axes.set_xlim(low / 1.3, high * 1.3)
            steps = [n * 10.0**power for power in range(-3, 8) for n in (1, 2, 5)]
            _ticks(axes, [x for x in steps if low / 1.3 <= x <= high * 1.3])
        return
    axes.set_xlabel("visual tokens the language model reads", color=_INK, fontsize=10)
    axes.set_xscale("log", base=2)
    inch = np.log2(max(high / low, 2)) / (axes.bbox.width / DPI - _NAMES - _MARGIN)
    axes.set_xlim(low * 2 ** (-_NAMES * inch), high * 2 ** (_MARGIN * inch))
    ours = [row["tokens"] for line in lines if line.kind == "ours" for row in line.rows if not row["auto"]]
    ticks = sorted({round(x) for x in (ours or costs)} | ({round(full)} if full else set()))
    ticks = [x for i, x in enumerate(ticks) if i == 0 or np.log2(x / ticks[i - 1]) > _TICK * inch]
    _ticks(axes, ticks)


def _ticks(axes: Axes, ticks: Sequence[float]) -> None:
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))


def _draw(axes: Axes, cost: str, lines: Sequence[_Line], summary: Summary) -> None:
    """The ground that is reached, the lines, and the score of all tokens."""
    full = summary["methods"].get(FULL)
    reached = [line.points(cost) for line in lines if line.kind != "bound" and line.name not in OF_OTHERS]
    if full is not None and full[cost] is not None:
        reached.append(np.array([[full[cost], full["score"]]]))
    start, end = axes.get_xlim()
    steps = _front(np.concatenate([np.empty((0, 2)), *reached]))
    if len(steps):
        start = steps[0, 0]
        x, y = np.append(steps[:, 0], end), np.append(steps[:, 1], steps[-1, 1])
        axes.fill_between(x, y, axes.get_ylim()[0], step="post", color=_GROUND, lw=0, zorder=0)
    for line in lines:
        measured = [row for row in line.rows if row[cost] is not None]
        fixed, auto = ([row for row in measured if row["auto"] is which] for which in (False, True))
        axes.plot([row[cost] for row in fixed], [row["score"] for row in fixed], **line.style)
        hollow: dict[str, Any] = dict(ls="", marker="D", mfc="white", mec=line.style["color"], mew=1.6)
        axes.plot([row[cost] for row in auto], [row["score"] for row in auto], **(line.style | hollow))
        if line.kind == "ours":
            for row in fixed:
                axes.vlines(row[cost], *row["interval"], color=line.style["color"], lw=1.2, zorder=7)
        if line.name == OURS:
            for row in auto:
                _write(axes, "auto", (row[cost], row["score"]), (0, -14), line.style["color"], ha="center")
    if full is not None:
        axes.hlines(full["score"], start, end, color=_INK, lw=0.9, zorder=2)
        if full[cost] is not None:
            axes.plot(full[cost], full["score"], "o", color=_INK, ms=6, zorder=5, mec="white", mew=1)
            text = f"all tokens {full['score']:.1%}" if cost == "tokens" else "all tokens"
            _write(axes, text, (full[cost], full["score"]), (8, 9), _INK, ha="right")


def _write(
    axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], colour: str, **more: Any
) -> None:
    """Small text with a white rim, `offset` points from a place in the data."""
    rim = [withStroke(linewidth=2.5, foreground="white")]
    look: dict[str, Any] = dict(fontsize=9, color=colour, va="center_baseline", path_effects=rim, zorder=8)
    axes.annotate(text, at, offset, textcoords="offset points", **(look | more))


def _front(points: np.ndarray) -> np.ndarray:
    """Return the Pareto front of `points` [n, 2] (cost, score), by rising cost."""
    ordered = points[np.lexsort((-points[:, 1], points[:, 0]))]
    best = np.maximum.accumulate(ordered[:, 1])
    return ordered[np.diff(best, prepend=-np.inf) > 0]


def _name(axes: Axes, lines: Sequence[_Line]) -> None:
    """Write names left of the cheapest points in a column; below or beside points that are far off."""
    first = [(line, *line.points("tokens")[0]) for line in lines]
    start = min(x for _, x, _ in first)
    _column(axes, [entry for entry in first if entry[1] <= 1.5 * start], left=True)
    rest = sorted((entry for entry in first if entry[1] > 1.5 * start), key=lambda entry: entry[1])
    below: list[tuple[_Line, float, float]] = []
    while rest:
        near = [entry for entry in rest if entry[1] <= 1.25 * rest[0][1]]
        rest = rest[len(near) :]
        alone = [entry for entry in near if len(near) == 1 or entry[0].kind == "ours"]
        _column(axes, [entry for entry in near if entry not in alone], left=False)
        if below and alone and min(x for _, x, _ in alone) > 2 * below[0][1]:
            _stack(axes, below)
            below = []
        below += alone
    _stack(axes, below)


def _stack(axes: Axes, entries: Sequence[tuple[_Line, float, float]]) -> None:
    """Names below nearby points, each lower than the name of a higher point."""
    free = np.inf
    for line, x, y in sorted(entries, key=lambda entry: -entry[2]):
        own = axes.transData.transform((x, y))[1]
        place = min(own - 13 * DPI / 72, free)
        free = place - _PITCH * DPI / 72
        colour, weight = line.style["color"], "bold" if line.kind == "ours" else "normal"
        leader = dict(arrowstyle="-", color=colour, lw=0.6, alpha=0.7, shrinkA=1, shrinkB=5, relpos=(0.5, 1))
        _write(
            axes, line.name, (x, y), (0, (place - own) * 72 / DPI), colour,
            ha="center", weight=weight, arrowprops=leader,
        )  # fmt: skip


def _column(axes: Axes, entries: Sequence[tuple[_Line, float, float]], left: bool) -> None:
    """Names one below the other at a side of their points, each with a leader to its own."""
    column = sorted(entries, key=lambda entry: (entry[2], entry[0].name))
    wanted = [axes.transData.transform((x, y))[1] for _, x, y in column]
    placed = spread(wanted, _PITCH * DPI / 72, axes.bbox.y0, axes.bbox.y1)
    for (line, x, y), own, place in zip(column, wanted, placed, strict=True):
        colour, weight = line.style["color"], "bold" if line.kind == "ours" else "normal"
        end = (1, 0.5) if left else (0, 0.5)
        leader = dict(arrowstyle="-", color=colour, lw=0.6, alpha=0.7, shrinkA=1, shrinkB=5, relpos=end)
        shift = (-26 if left else 16, (place - own) * 72 / DPI)
        side = "right" if left else "left"
        _write(axes, line.name, (x, y), shift, colour, ha=side, weight=weight, arrowprops=leader)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions at least `gap` apart within low..high that are nearest (least squares) to the rising
    `wanted`.

    Where the range is too small for that gap, they are evenly spaced over it.
    """
    n = len(wanted)
    gap = min(gap, (high - low) / max(1, n - 1))
    blocks: list[list[float]] = []  # positions less their share of the gaps: pooled where they fall
    for i, position in enumerate(wanted):
        blocks.append([position - i * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, m), (b, k) = blocks[-2:]
            blocks[-2:] = [[(a * m + b * k) / (m + k), m + k]]
    level = [min(max(value, low), high - (n - 1) * gap) for value, count in blocks for _ in range(int(count))]
    return [value + i * gap for i, value in enumerate(level)]
