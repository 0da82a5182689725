"""Busy streets, drawn from a seed: houses, shops, cars and people, of which none is odd.

    page = draw_street(seed=7, size=(1024, 768))

The counterpart of `odd`: asked what is unusual here, a map of what is rare has no peak.
"""

from __future__ import annotations

import random

from PIL import Image

from arr_coc_lab.world.canvas import Canvas, Ink, Rect
from arr_coc_lab.world.fonts import TRAIN_FONTS, font
from arr_coc_lab.world.page import Page, check_size, page_seed
from arr_coc_lab.world.questions import Question
from arr_coc_lab.world.vocabulary import TITLE_FIRST

UNUSUAL = "What is unusual in this image?"


def draw_street(seed: int, size: tuple[int, int] = (1024, 768), split: str = "train") -> Page:
    """Draw one street, fixed by its arguments.

    Args:
        seed: 0 or more.
        size: width and height in pixels, each 256 to 4096.
        split: "train", "validation" or "test".

    Raises:
        ValueError: an unknown split, a negative seed, a size out of range.
    """
    width, height = size
    check_size(size, 256)
    rng = random.Random(page_seed(seed, split))
    canvas = Canvas(Image.new("RGB", size), rng, TRAIN_FONTS, dark=False)
    ground, kerb = round(height * rng.uniform(0.62, 0.7)), round(height * rng.uniform(0.76, 0.8))
    _sky(canvas, (0, 0, width, ground))
    canvas.draw.rectangle((0, ground, width, kerb), fill=_grey(rng, 150))
    canvas.draw.rectangle((0, kerb, width, height), fill=_grey(rng, 85))
    left = -rng.randint(0, 60)
    while left < width:
        right = left + rng.randint(width // 10, width // 5)
        _house(canvas, (left, round(ground * rng.uniform(0.08, 0.45)), right, ground))
        left = right
    for _ in range(rng.randint(5, 9)):
        _tree(canvas, rng.randint(0, width), kerb - rng.randint(0, 20), rng.randint(90, 190))
    for _ in range(rng.randint(14, 24)):
        _person(canvas, rng.randint(0, width), rng.randint(kerb - 10, height - 20), rng.randint(60, 120))
    for x in range(rng.randint(0, 80), width, rng.randint(150, 240)):
        _car(canvas, x, rng.randint(kerb + 40, height - 10), rng.randint(110, 190))
    for y in range(kerb + 20, height, 60):
        for x in range(rng.randint(0, 60), width, 150):
            canvas.draw.rectangle((x, y, x + 60, y + 6), fill=_grey(rng, 215))
    question = Question(UNUSUAL, "nothing", "anomaly", (), ("nothing",))
    return Page(canvas.image, (question,), (), (), (), "street", seed)


def _grey(rng: random.Random, level: int) -> Ink:
    r, g, b = (level + rng.randint(-12, 12) for _ in range(3))
    return r, g, b


def _paint(rng: random.Random) -> Ink:
    r, g, b = (rng.randint(20, 240) for _ in range(3))
    return r, g, b


def _sky(canvas: Canvas, rect: Rect) -> None:
    x0, y0, x1, y1 = rect
    rng = canvas.rng
    top, bottom = (rng.randint(90, 160), 180, 235), (220, 228, 235)
    for y in range(y0, y1):
        share = (y - y0) / (y1 - y0)
        mixed = tuple(round(a + (b - a) * share) for a, b in zip(top, bottom, strict=True))
        canvas.draw.line((x0, y, x1, y), fill=mixed)
    for _ in range(rng.randint(3, 6)):
        x, y, w = rng.randint(x0, x1), rng.randint(0, y1 // 4), rng.randint(60, 180)
        canvas.draw.ellipse((x, y, x + w, y + w // 3), fill=(240, 243, 246))


def _house(canvas: Canvas, rect: Rect) -> None:
    """A house with windows of its own make and often a shop with a sign."""
    rng, (x0, y0, x1, y1) = canvas.rng, rect
    wall, frame, glass = _paint(rng), _paint(rng), _paint(rng)
    canvas.draw.rectangle(rect, fill=wall)
    if rng.random() < 0.6:
        peak = (rng.randint(x0, x1), y0 - rng.randint(30, 90))
        canvas.draw.polygon([(x0 - 6, y0), peak, (x1 + 6, y0)], fill=_paint(rng))
    w, h = rng.randint(20, 40), rng.randint(28, 60)
    for y in range(y0 + 15, y1 - 110, h + rng.randint(14, 30)):
        for x in range(x0 + 12, x1 - w - 6, w + rng.randint(12, 24)):
            canvas.draw.rectangle((x, y, x + w, y + h), fill=glass, outline=frame, width=3)
            if rng.random() < 0.4:
                canvas.draw.line((x + w // 2, y, x + w // 2, y + h), fill=frame, width=3)
            if rng.random() < 0.3:
                canvas.draw.rectangle((x, y, x + w, y + h // rng.randint(2, 4)), fill=_paint(rng))
    canvas.draw.rectangle((x0 + 8, y1 - 70, x1 - 8, y1 - 6), fill=_paint(rng), outline=frame, width=4)
    canvas.draw.rectangle((x0 + 4, y1 - 96, x1 - 4, y1 - 68), fill=_paint(rng))
    face = font(rng.choice(canvas.fonts), rng.randint(14, 22))
    canvas.draw.text((x0 + 12, y1 - 94), rng.choice(TITLE_FIRST), font=face, fill=_paint(rng))


def _tree(canvas: Canvas, x: int, y: int, size: int) -> None:
    rng = canvas.rng
    canvas.draw.rectangle((x - 6, y - size // 2, x + 6, y), fill=(110, 80, 50))
    for _ in range(14):
        dx, dy, r = rng.randint(-size // 4, size // 4), rng.randint(-size, -size // 2), size // 6
        green = (rng.randint(30, 90), rng.randint(110, 170), rng.randint(30, 80))
        canvas.draw.ellipse((x + dx - r, y + dy - r, x + dx + r, y + dy + r), fill=green)


def _person(canvas: Canvas, x: int, y: int, size: int) -> None:
    rng = canvas.rng
    w, head = size // 5, size // 8
    canvas.draw.line((x - w // 2, y, x, y - size // 2), fill=_paint(rng), width=w // 2)
    canvas.draw.line((x + w // 2, y, x, y - size // 2), fill=_paint(rng), width=w // 2)
    canvas.draw.rounded_rectangle(
        (x - w, y - round(0.85 * size), x + w, y - size // 2), w // 2, fill=_paint(rng)
    )
    skin = rng.choice(((240, 205, 175), (205, 160, 120), (130, 90, 65)))
    canvas.draw.ellipse((x - head, y - round(1.08 * size), x + head, y - round(0.84 * size)), fill=skin)


def _car(canvas: Canvas, x: int, y: int, length: int) -> None:
    rng, high = canvas.rng, length // 3
    paint = _paint(rng)
    roof = [(x + length // 5, y - high), (x + length // 3, y - 2 * high)]
    roof += [(x + 3 * length // 4, y - 2 * high), (x + 7 * length // 8, y - high)]
    canvas.draw.polygon(roof, fill=_paint(rng))
    canvas.draw.rounded_rectangle((x, y - high - 4, x + length, y - 8), 10, fill=paint)
    for wheel in (x + length // 5, x + 4 * length // 5):
        canvas.draw.ellipse((wheel - 14, y - 22, wheel + 14, y + 6), fill=(25, 25, 25))
        canvas.draw.ellipse((wheel - 6, y - 14, wheel + 6, y - 2), fill=(190, 190, 190))
