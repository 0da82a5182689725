"""Study sheets for the vision tower: fields in crowded rows, and the blocks of a page without filling.

Reading is what takes longest to learn, and most of a page is no value: a sheet shows twice as many
characters for the same arithmetic.
"""

from __future__ import annotations

import random

from PIL import Image

from arr_coc_lab.world import Page, blocks
from arr_coc_lab.world.canvas import Canvas, Fact
from arr_coc_lab.world.fonts import TRAIN_FONTS, font
from arr_coc_lab.world.page import page_seed, wanted_things
from arr_coc_lab.world.vocabulary import LABELS

# Kind of a block -> how often, and its least and most height in px.
_KINDS: dict[str, tuple[float, int, int]] = {
    "rows": (6.0, 60, 260),
    "fields": (1.0, 90, 200),
    "stacked": (1.0, 90, 200),
    "table": (1.5, 90, 200),
    "faint": (1.0, 52, 76),
    "small": (2.0, 48, 56),
    "note": (0.4, 100, 130),
    "title": (0.4, 64, 72),
    "scene": (1.2, 90, 200),
}


def draw_sheet(seed: int, size: tuple[int, int]) -> Page:
    """Draw one sheet of `size` (width, height) px: a page without questions, in training fonts.

    The seeds are those of the training split: sheets are for training only.
    """
    width, height = size
    rng = random.Random(page_seed(seed, "train"))
    canvas = Canvas(Image.new("RGB", size), rng, TRAIN_FONTS, dark=rng.random() < 0.12)
    canvas.image.paste(canvas.paper(14), (0, 0, width, height))
    names, weights = list(_KINDS), [often for often, _, _ in _KINDS.values()]
    y = rng.randint(0, 12)
    while y + 48 < height:
        kind = rng.choices(names, weights)[0]
        _, least, most = _KINDS[kind]
        tall = min(rng.randint(least, most), height - y - 2)
        if tall >= least:
            x0 = rng.randint(0, 14)
            y = _draw(canvas, kind, (x0, y, width - rng.randint(2, 10), y + tall)) + rng.randint(2, 10)
        else:
            y += rng.randint(4, 24)
    return Page(
        canvas.image, (), tuple(canvas.facts), tuple(canvas.things), tuple(canvas.glyphs), "sheet", seed
    )


def _rows(canvas: Canvas, rect: blocks.Rect) -> int:
    """Fields one after another in every line, long values, little air; the y below them."""
    rng = canvas.rng
    x0, y, x1, y1 = rect
    size = rng.randint(17, 20) if rng.random() < 0.35 else rng.randint(20, 33)  # small print is hardest
    face, ink = rng.choice(canvas.fonts), canvas.ink()
    value_face = face if rng.random() < 0.6 else rng.choice(canvas.fonts)
    mark = rng.choice((":", "", " -"))
    pitch, labels = int(size * rng.uniform(1.2, 1.5)), list(LABELS)
    while y + 1.2 * size < y1:
        x = x0 + rng.randint(0, 12)
        # Short labels more often: they leave room for values.
        for label in sorted(labels, key=lambda word: len(word) * rng.random()):
            value = max((blocks.code(rng) for _ in range(3)), key=len)
            word = blocks.cased(rng, label) + mark
            at = x + int(font(face, size).getlength(word) + rng.uniform(0.4, 0.9) * size)
            right = at + font(value_face, size).getlength(value)
            if right > x1:
                break
            a = blocks.write(canvas, (x, y), word, face, size, ink, x1 + size)
            b = blocks.write(canvas, (at, y), value, value_face, size, ink, x1 + size)
            assert a is not None, "room was checked before"
            assert b is not None, "room was checked before"
            canvas.facts.append(Fact("value", label, tuple(value), (a, b), canvas.last(len(value))))
            labels.remove(label)
            x = int(right + rng.uniform(0.7, 1.2) * size)
        y += pitch
    return y


def _draw(canvas: Canvas, kind: str, rect: blocks.Rect) -> int:
    """Draw one block; the y below it."""
    rng = canvas.rng
    if kind == "rows":
        return _rows(canvas, rect)
    if kind in ("fields", "stacked", "table"):
        labels = rng.sample(LABELS, len(LABELS))
        if kind == "table":
            return blocks.table(canvas, rect, labels)
        return blocks.fields(canvas, rect, labels, stacked=kind == "stacked")
    if kind == "scene":
        blocks.scene(canvas, rect, wanted_things(rng, rng.randint(2, 8)))
    else:
        {"faint": blocks.faint, "small": blocks.small, "note": blocks.note, "title": blocks.title}[kind](
            canvas, rect
        )
    return rect[3]
