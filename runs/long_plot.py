"""Draws accuracy over compression of pages of text, from the result file.

python runs/long_plot.py [runs/results/long-text.json] [docs/long-text.png]
"""

import json
import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

INK, QUIET, GRID = "#1f2328", "#6e7781", "#e6e8eb"
LINES = {
    "saccade": ("coarse + saccades", "#6a1fb8", "o", 2.8),
    "sparse": ("saccades alone", "#d9480f", "s", 2.8),
    "truncation": ("the first rows", "#8a8f98", "v", 1.4),
    "mean pooling": ("mean pooling", "#33508f", "D", 1.6),
    "shrunk": ("a smaller picture", "#117733", "^", 1.6),
}
"""By method its name in the plot, colour, marker and width."""
KINDS = {"strings": "random strings", "words": "words of a small vocabulary"}
MIN_PITCH = 0.048
"""The least distance between two names, as a share of the axis."""


def spread(heights):
    """Heights of names moved apart, in the same order."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = dict.fromkeys(order, 0.0)
    low = -0.02
    for index in order:
        placed[index] = low = max(heights[index], low)
        low += MIN_PITCH
    return [placed[index] for index in range(len(heights))]


def panel(axes, rows, kind, names):
    """One kind of answers."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(QUIET)
    axes.tick_params(colors=QUIET, labelcolor=INK, labelsize=9, left=False)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([1, 2, 4, 8, 16]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(["1x", "2x", "4x", "8x", "16x"])
    axes.set_xlim(0.93, 24 if not names else 78)
    axes.set_ylim(-0.03, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("compression: cells of the page over tokens read", color=INK, fontsize=9.5)
    axes.set_title(KINDS[kind], fontsize=11, color=INK, loc="left", pad=8)
    (full,) = (row for row in rows if row["method"] == "all tokens")
    (blank,) = (row for row in rows if row["method"] == "a page without print")
    axes.hlines(blank[kind]["exact"], 1, 21, color=QUIET, lw=1, ls=(0, (1, 2)))
    ends = []
    for method, (text, colour, marker, width) in LINES.items():
        own = sorted((row for row in rows if row["method"] == method), key=lambda row: row["compression"])
        x = [1.0, *(row["compression"] for row in own)]
        y = [full[kind]["exact"], *(row[kind]["exact"] for row in own)]
        z = 6 if width > 2 else 4
        axes.plot(x, y, color=colour, lw=width, marker=marker, ms=5.5, mec="white", mew=0.9, zorder=z)
        if method == "saccade":
            low, high = zip(*(row[kind]["interval"] for row in own), strict=True)
            axes.fill_between(x[1:], low, high, color=colour, alpha=0.10, lw=0, zorder=1)
        ends.append((y[-1], text, colour, width > 2))
    others = [row for row in rows if row["side"] is None and row not in (full, blank)]
    for row in others:
        axes.plot(
            row["compression"], row[kind]["exact"], "P", color="#b8860b", ms=9, mec="white", mew=1, zorder=7
        )
    rim = [withStroke(linewidth=2.5, foreground="white")]
    for compression in {row["compression"] for row in others}:
        group = [row for row in others if row["compression"] == compression]
        names_at = {row[kind]["exact"]: [] for row in group}
        for row in group:
            names_at[row[kind]["exact"]].append(row["method"])
        for height, texts in zip(spread(list(names_at)), names_at.values(), strict=True):
            axes.text(
                1.07 * compression, height + 0.03, ", ".join(texts), va="center",
                fontsize=8.5, color="#8a6508", path_effects=rim, zorder=8,
            )  # fmt: skip
    axes.plot(1, full[kind]["exact"], "o", color=INK, ms=7, mec="white", mew=1, zorder=9)
    if not names:
        axes.annotate(
            "all tokens",
            (1, full[kind]["exact"]),
            (2, 11),
            textcoords="offset points",
            fontsize=8.5,
            color=INK,
        )
        return
    for height, (_, text, colour, bold) in zip(spread([end[0] for end in ends]), ends, strict=True):
        weight = "bold" if bold else "normal"
        axes.text(23.5, height, text, color=colour, fontsize=9, va="center", weight=weight)


def draw(result, path):
    """Draw a result file."""
    figure = Figure(figsize=(10, 4.6), dpi=130, facecolor="white")
    FigureCanvasAgg(figure)
    grid = {"width_ratios": [1, 1.33], "wspace": 0.06}
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw=grid)
    figure.subplots_adjust(left=0.065, right=0.985, top=0.83, bottom=0.125)
    panel(left, result["rows"], "strings", names=False)
    panel(right, result["rows"], "words", names=True)
    left.set_ylabel("exact match", color=INK, fontsize=9.5)
    heading = f"What stands after X? {result['pages']} pages of text, {result['cells']:,} cells each, the bundled model"
    figure.text(0.065, 0.93, heading, fontsize=12.5, weight="bold", color=INK)
    figure.savefig(path)


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    places = [Path(text) for text in sys.argv[1:]]
    source = places[0] if places else root / "runs" / "results" / "long-text.json"
    draw(json.loads(source.read_text()), places[1] if len(places) > 1 else root / "docs" / "long-text.png")
