"""Marks on a panel of a picture: outlines of the evidence, and the guide's words where it read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from arr_coc.data.record import Box

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from arr_coc.inspect.guidance import Spot

Evidence = Sequence[tuple[Box, bool]]
"""Boxes in shares of the picture's sides, each with whether all of its cells were kept."""
SAYS = {
    "sure": "the guide is sure",
    "unsure": "the guide is unsure",
    "nothing": "nothing here matches, says the guide",
    "whole": "about the whole page, says the guide",
    "odd": "about what stands out, says the guide",
}
"""What the guide says of itself, in few words."""
AROUND = 0.005
"""Between a box and its outline, in shares of the picture's sides, so that it covers no print."""
HIT, MISSED, SPOT = "#0e9f6e", "#e02424", "#0b7bc4"


def draw_evidence(axes: Axes, evidence: Evidence) -> None:
    """Outline boxes: green and whole if all cells were kept, else red and dashed."""
    for (x0, y0, x1, y1), is_hit in evidence:
        colour, style = (HIT, "solid") if is_hit else (MISSED, (0, (3, 2)))
        halo = [withStroke(linewidth=3.6, foreground="white")]
        axes.add_patch(
            Rectangle(
                (x0 - AROUND, y0 - AROUND), x1 - x0 + 2 * AROUND, y1 - y0 + 2 * AROUND, fill=False,
                edgecolor=colour, linestyle=style, linewidth=1.8, path_effects=halo,
            )
        )  # fmt: skip


def draw_spots(axes: Axes, spots: Sequence[Spot]) -> None:
    """Write words at their places, a dot below each; what would lie on another stands above it."""
    rows: list[tuple[float, float]] = []
    for spot in sorted(spots, key=lambda one: one.place, reverse=True):
        y, x = spot.place
        level = y - 0.028
        while any(abs(level - other) < 0.04 and abs(x - column) < 0.3 for other, column in rows):
            level -= 0.042
        rows.append((level, x))
        axes.plot([x], [y], marker="o", markersize=4, color=SPOT, markeredgecolor="white")
        side = "left" if x < 0.15 else "right" if x > 0.85 else "center"
        axes.text(
            x, max(level, 0.02), f"{spot.label} {spot.likeness:.2f}", size=8, color="white", ha=side,
            va="bottom", parse_math=False,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": SPOT, "edgecolor": "white", "linewidth": 0.6},
        )  # fmt: skip
