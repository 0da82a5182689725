"""Marks on a panel of a picture: outlines of the evidence, and the guide's words where it read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from PIL import Image, ImageDraw

from arr_coc.inspect.lettering import DPI, font, printable

if TYPE_CHECKING:
    from arr_coc.data.record import Box
    from arr_coc.inspect.guidance import Spot

Evidence: TypeAlias = "Sequence[tuple[Box, bool]]"
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
_LINE, _HALO, _DASH, _SPACE = 4, 2, 11, 8  # px
_LABEL = 8.0  # points
_FINE = 4  # rounded shapes are drawn so many times as large and reduced, which smooths them


def draw_evidence(panel: Image.Image, evidence: Evidence) -> None:
    """Outline boxes: green and whole if all cells were kept, else red and dashed."""
    draw = ImageDraw.Draw(panel)
    for (x0, y0, x1, y1), is_hit in evidence:
        left, right = (round(x * panel.width) for x in (x0 - AROUND, x1 + AROUND))
        top, bottom = (round(y * panel.height) for y in (y0 - AROUND, y1 + AROUND))
        strokes = list(_strokes((left, top, right, bottom), dashed=not is_hit))
        for grown, colour in ((_HALO, "white"), (0, HIT if is_hit else MISSED)):
            for x, y, x_end, y_end in strokes:
                draw.rectangle((x - grown, y - grown, x_end + grown, y_end + grown), fill=colour)


def _strokes(box: tuple[int, int, int, int], dashed: bool) -> Iterator[tuple[int, int, int, int]]:
    """The outline of a box in px as filled rectangles, whole sides or dashes."""
    left, top, right, bottom = box
    before, after = _LINE // 2, _LINE - _LINE // 2 - 1
    for y in (top, bottom):
        for start, end in _dashes(left - before, right + after, dashed):
            yield start, y - before, end, y + after
    for x in (left, right):
        for start, end in _dashes(top - before, bottom + after, dashed):
            yield x - before, start, x + after, end


def _dashes(start: int, end: int, dashed: bool) -> Iterator[tuple[int, int]]:
    if not dashed:
        yield start, end
        return
    for at in range(start, end + 1, _DASH + _SPACE):
        yield at, min(at + _DASH - 1, end)


def draw_spots(panel: Image.Image, spots: Sequence[Spot]) -> None:
    """Write words at their places, a dot below each; what would lie on another stands above it."""
    rows: list[tuple[float, float]] = []
    letters = font("normal", _LABEL)
    pad, dot = round(0.2 * _LABEL * DPI / 72), round(2.5 * DPI / 72)
    for spot in sorted(spots, key=lambda one: one.place, reverse=True):
        y, x = spot.place
        level = y - 0.028
        while any(abs(level - other) < 0.04 and abs(x - column) < 0.3 for other, column in rows):
            level -= 0.042
        rows.append((level, x))
        column, row = round(x * panel.width), round(y * panel.height)
        _rounded(panel, (column - dot, row - dot, column + dot, row + dot), dot)
        text = printable(f"{spot.label} {spot.likeness:.2f}")
        above, below = letters.getmetrics()
        wide, high = round(letters.getlength(text)), above + below
        left = max(pad, min(column - wide // 2, panel.width - wide - pad))
        top = round(max(level, 0.02) * panel.height) - high
        _rounded(panel, (left - pad, top - pad, left + wide + pad, top + high + pad), 2 * pad)
        ImageDraw.Draw(panel).text((left, top + above), text, "white", letters, anchor="ls")


def _rounded(panel: Image.Image, box: tuple[int, int, int, int], radius: int) -> None:
    """A box in the colour of spots with a white edge and smooth corners."""
    size = (box[2] - box[0] + 1, box[3] - box[1] + 1)
    for inset, colour in ((0, "white"), (_FINE + _FINE // 2, SPOT)):
        shape = Image.new("L", (size[0] * _FINE, size[1] * _FINE))
        corners = (inset, inset, shape.width - 1 - inset, shape.height - 1 - inset)
        ImageDraw.Draw(shape).rounded_rectangle(corners, radius * _FINE - inset, fill=255)
        panel.paste(colour, box[:2], shape.resize(size, Image.Resampling.BOX))
