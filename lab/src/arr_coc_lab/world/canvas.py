"""The canvas: a page while it is being drawn, with records of the texts and shapes on it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from PIL import Image, ImageDraw

Rect = tuple[int, int, int, int]
"""A rectangle (x0, y0, x1, y1) in px."""
Ink = tuple[int, int, int]
"""A colour: red, green and blue, 0 to 255."""


@dataclass(frozen=True)
class Thing:
    """A coloured shape: the names of its colour and shape, its centre and diameter in px."""

    colour: str
    shape: str
    x: int
    y: int
    size: int

    @property
    def box(self) -> Rect:
        """The square around the shape, in px."""
        r = self.size // 2
        return (self.x - r, self.y - r, self.x + r, self.y + r)


@dataclass(frozen=True)
class Fact:
    """A text on the page that a question can ask for."""

    family: str  # the family of its questions
    label: str  # the text's name in a question
    value: tuple[str, ...]  # the answer, one entry per token (characters or words)
    boxes: tuple[Rect, ...]  # the evidence, in px
    spans: tuple[Rect, ...] = ()  # the box of each entry of `value`, in px


@dataclass
class Canvas:
    """A page while it is being drawn."""

    image: Image.Image  # the picture, RGB
    rng: random.Random  # the source of all random choices
    fonts: tuple[str, ...]  # names of the fonts to choose from
    dark: bool  # whether the page is light on dark
    facts: list[Fact] = field(default_factory=list)  # the texts drawn so far that can be asked for
    things: list[Thing] = field(default_factory=list)  # the shapes drawn so far
    # all characters drawn so far with their boxes in px, labels for training the vision encoder
    glyphs: list[tuple[str, Rect]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = ImageDraw.Draw(self.image)

    def last(self, count: int) -> tuple[Rect, ...]:
        """Return the boxes (px) of the last `count` characters that were written."""
        return tuple(box for _, box in self.glyphs[-count:])

    def ink(self) -> Ink:
        """Return a text colour that is easy to read on this page."""
        v = self.rng.randint(0, 60)
        r, g, b = (min(255, max(0, v + self.rng.randint(-15, 25))) for _ in range(3))
        return (255 - r, 255 - g, 255 - b) if self.dark else (r, g, b)

    def paper(self, spread: int = 22) -> Ink:
        """Return a background colour near the page's own."""
        v = self.rng.randint(255 - 2 * spread, 255)
        r, g, b = (min(255, max(0, v + self.rng.randint(-spread, spread))) for _ in range(3))
        return ((255 - r) * 2 // 3, (255 - g) * 2 // 3, (255 - b) * 2 // 3) if self.dark else (r, g, b)


def blank_canvas(size: tuple[int, int], rng: random.Random, fonts: tuple[str, ...], dark: bool) -> Canvas:
    """Return a canvas of (width, height) in px with paper of one colour."""
    canvas = Canvas(Image.new("RGB", size), rng, fonts, dark)
    canvas.image.paste(canvas.paper(14), (0, 0, *size))
    return canvas
