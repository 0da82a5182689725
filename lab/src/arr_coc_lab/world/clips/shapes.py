"""Coloured shapes with smooth edges, and the box that each fills."""

from __future__ import annotations

from functools import lru_cache

from PIL import Image, ImageDraw

from arr_coc_lab.world.canvas import Ink, Rect
from arr_coc_lab.world.outlines import outline

_FINE = 4  # shapes are drawn this much larger and scaled down


@lru_cache(maxsize=256)
def shape_mask(shape: str, diameter: int) -> Image.Image:
    """Return the shape in white on black, in mode L, cut to its box: about `diameter` px on a side."""
    side = int(1.3 * diameter) * _FINE
    large = Image.new("L", (side, side))
    draw, r, centre = ImageDraw.Draw(large), diameter * _FINE / 2, side / 2
    around = (centre - r, centre - r, centre + r, centre + r)
    if shape == "circle":
        draw.ellipse(around, fill=255)
    elif shape == "ring":
        draw.ellipse(around, outline=255, width=max(4 * _FINE, int(0.36 * r)))
    else:
        draw.polygon(outline(shape, centre, centre, r, 0.0), fill=255)
    small = large.resize((side // _FINE, side // _FINE), Image.Resampling.BOX)
    return small.crop(small.getbbox())


def shape_box(shape: str, diameter: int, x: int, y: int) -> Rect:
    """Return the box of a shape whose box's middle is (x, y), in px."""
    width, height = shape_mask(shape, diameter).size
    left, top = x - width // 2, y - height // 2
    return left, top, left + width, top + height


def draw_shape(image: Image.Image, shape: str, diameter: int, x: int, y: int, ink: Ink) -> None:
    """Draw a shape whose box's middle is (x, y)."""
    box = shape_box(shape, diameter, x, y)
    image.paste(ink, box, shape_mask(shape, diameter))
