"""Marks on a panel of a picture: outlines of the evidence, and the guide's words where it read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from arr_coc.trace.lettering import DPI, font, font_of, text_width, wrap

if TYPE_CHECKING:
    from arr_coc.data.record import Box
    from arr_coc.trace.guidance import Spot

Evidence: TypeAlias = "Sequence[tuple[Box, bool]]"
"""Boxes in shares of the picture's sides, each with whether all of its cells were kept."""
_Px: TypeAlias = "tuple[int, int, int, int]"  # left, top, right, bottom; the last two are inside
AROUND = 0.005
"""Between a box and its outline, in shares of the picture's sides, so that it covers no print."""
HIT, MISSED, SPOT = "#0e9f6e", "#e02424", "#0b7bc4"
_LINE, _HALO, _DASH, _SPACE = 4, 2, 11, 8  # px
_LABEL = 8.0  # points
_BAR, _BAR_HALF = 7, 12  # px, the height of a bar below print and half its width
_DOT = 4  # px, the most that are blank within a letter: below the dot of an i
_CONTRAST = 24  # levels of gray within a row from which on it is printed
_AWAY = 2  # its own heights that a word may stand above where it would be, so that it hides nothing
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


def _strokes(box: _Px, dashed: bool) -> Iterator[_Px]:
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
    """Underline the print at places, which stays readable, and write their words above it.

    A word that would lie on another, or on the print of another place, stands further up, and where there is
    no room above, below its bar. One that would hide what nobody asked for stands a little further up,
    if the picture is blank there.
    """
    letters, pad = font("normal", _LABEL), round(0.2 * _LABEL * DPI / 72)
    above, below = letters.getmetrics()
    gray = np.asarray(panel.convert("L"), dtype=np.int16)
    spots = sorted(spots, key=lambda one: one.place, reverse=True)
    prints = [_print(gray, spot.place) for spot in spots]
    taken = list(prints)
    for left, _, right, bottom in prints:
        _rounded(panel, (left, bottom - _BAR + 1, right, bottom), _BAR // 2)
    high = above + below + 2 * pad + 1
    # Below the words at the top is the only room for theirs, so they come first.
    for spot, box in sorted(zip(spots, prints, strict=True), key=lambda both: both[1][1] >= high):
        words = f"{spot.label} {spot.likeness:.2f}"
        (text,) = wrap(words, "normal", _LABEL, panel.width - 2 * pad - 1, 1)
        wide = round(text_width(text, "normal", _LABEL)) + 2 * pad + 1
        x = max(0, min(_start(box, wide, prints), panel.width - wide))
        last, nearest = panel.height - high, box[1] - high
        rows = [*range(nearest, -1, -1), *range(box[3] + 1, last + 1)]
        in_the_way = [(upper, lower) for start, upper, end, lower in taken if start < x + wide and x <= end]
        free = [y for y in rows if all(y + high <= upper or lower < y for upper, lower in in_the_way)]
        near = (y for y in free if 0 <= nearest - y <= _AWAY * high)
        blank = (y for y in near if np.ptp(gray[y : y + high, x : x + wide]) < _CONTRAST)
        y = next(blank, free[0] if free else max(0, min(nearest, last)))
        taken.append((x, y, x + wide - 1, y + high - 1))
        _rounded(panel, taken[-1], 2 * pad)
        own = font_of(text, "normal", _LABEL)
        ImageDraw.Draw(panel).text((x + pad, y + pad + above), text, "white", own, anchor="ls")


def _start(box: _Px, wide: int, prints: Sequence[_Px]) -> int:
    """Where a label of a width begins: centred on its bar, or turned away from a neighbour in its line."""
    line = [other for other in prints if other[1] <= box[3] and box[1] <= other[3]]
    middles = [(left + right) // 2 for left, _, right, _ in line]
    own = (box[0] + box[2]) // 2
    before, after = (any(0 < side * (middle - own) < wide for middle in middles) for side in (-1, 1))
    if before == after:
        return own - wide // 2
    return own - _BAR_HALF // 2 if before else own + _BAR_HALF // 2 - wide


def _print(gray: np.ndarray, place: tuple[float, float]) -> _Px:
    """The box in px, as wide as a bar, of the print nearest to a place and of the bar below it.

    Where there is no end of print, as in a photograph, it ends a little above and below the place.
    """
    height, width = gray.shape
    row, column = (min(int(share * side), side - 1) for share, side in zip(place, gray.shape, strict=True))
    left, right = max(0, column - _BAR_HALF), min(width - 1, column + _BAR_HALF)
    reach = height // 20
    first, last = max(0, row - reach), min(height - 1, row + reach)
    printed = np.ptp(gray[first : last + 1, left : right + 1], axis=1) >= _CONTRAST
    top = bottom = row
    if printed.any():
        rows = first + np.flatnonzero(printed)
        nearest = int(np.abs(rows - row).argmin())
        gaps = np.flatnonzero(np.diff(rows) > _DOT + 1)  # after which rows a line ends
        start = gaps[gaps < nearest].max(initial=-1) + 1
        end = gaps[gaps >= nearest].min(initial=len(rows) - 1)
        top, bottom = int(rows[start]), int(rows[end])
    top -= (bottom - top) * 2 // 5 + 1  # its neighbours in the line may be capitals
    return left, max(0, top), right, min(bottom + _BAR, height - 1)


def _rounded(panel: Image.Image, box: _Px, radius: int) -> None:
    """A box in the colour of spots with a white edge and smooth corners."""
    size = (box[2] - box[0] + 1, box[3] - box[1] + 1)
    for inset, colour in ((0, "white"), (_FINE + _FINE // 2, SPOT)):
        shape = Image.new("L", (size[0] * _FINE, size[1] * _FINE))
        corners = (inset, inset, shape.width - 1 - inset, shape.height - 1 - inset)
        ImageDraw.Draw(shape).rounded_rectangle(corners, radius * _FINE - inset, fill=255)
        panel.paste(colour, box[:2], shape.resize(size, Image.Resampling.BOX))
