"""Choices in several pictures beside each other: above each its question, in it the kept cells in colour.

draw_gallery([Choice(image, allocation, "What is the total?"), ...], columns=2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PIL import Image

from arr_coc.choose.allocation import Allocation
from arr_coc.data.record import Box
from arr_coc.trace.picture import _TITLE, DPI, _draw_panel, _kept_panel, _panel_pixels, _truth, wrap

_GAP, _CAPTION = 0.22, 0.36  # inches


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen in one picture.

    Attributes:
        image: the picture, at any size.
        allocation: the record; T must be 1.
        question: for which it was chosen.
        evidence: boxes (x0, y0, x1, y1) in px of the image that show the answer, outlined.
    """

    image: Image.Image
    allocation: Allocation
    question: str
    evidence: Sequence[Box] = ()


def draw_gallery(choices: Sequence[Choice], columns: int = 2, width: float = 11.0) -> Image.Image:
    """Draw choices in rows, the pictures of a row as high as each other.

    Args:
        choices: one or more.
        columns: how many pictures stand in a row.
        width: of the whole, in inches at 150 px.

    Returns:
        An RGB image.

    Raises:
        ValueError: there is no choice, a record is of more than one frame, or a box has no inside.
    """
    if not choices:
        raise ValueError("a gallery needs at least one choice")
    rows = [choices[i : i + columns] for i in range(0, len(choices), columns)]
    heights = [
        (width - _GAP * (len(row) + 1)) / sum(one.image.width / one.image.height for one in row)
        for row in rows
    ]
    height = sum(heights) + (_CAPTION + _GAP * 0.5) * len(rows) + _GAP * 0.5
    sheet = Image.new("RGB", (round(width * DPI), round(height * DPI)), "white")
    y = 0.0
    for row, high in zip(rows, heights, strict=True):
        y, x = y + _CAPTION, _GAP
        for one in row:
            wide = high * one.image.width / one.image.height
            _draw(sheet, one, x, y, wide, high)
            x += wide + _GAP
        y += high + _GAP * 0.5
    return sheet


def _draw(sheet: Image.Image, one: Choice, x: float, y: float, wide: float, high: float) -> None:
    """Draw one choice with its upper left corner at (x, y), in inches."""
    base = _panel_pixels(one.image, one.allocation, box=(wide, high))
    panel = _kept_panel(base, one.allocation, _truth(one.image, one.allocation, one.evidence, None))
    (title,) = wrap(one.question, "bold", _TITLE, wide * DPI, 1)
    _draw_panel(sheet, replace(panel, title=title, note=""), x, y)
