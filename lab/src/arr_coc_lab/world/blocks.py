"""Drawing of the blocks of a page: fields, tables, shapes, notes, faint or tiny text, running text, texture.

Every function takes a `Canvas` and a rectangle `(x0, y0, x1, y1)` in px, draws inside the rectangle and
records the texts and shapes it drew in `canvas.facts` and `canvas.things`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from PIL import Image

from arr_coc_lab.world.canvas import Canvas, Fact, Ink, Rect, Thing
from arr_coc_lab.world.fonts import font
from arr_coc_lab.world.outlines import outline
from arr_coc_lab.world.vocabulary import ALPHABET, COLOURS, FILLER, TITLE_FIRST, TITLE_SECOND

ROUND = frozenset(("circle", "ring"))  # shapes that look the same however they are turned


def code(rng: random.Random) -> str:
    """Return a random value of 2 to 5 characters of `ALPHABET`."""
    return "".join(rng.choice(ALPHABET) for _ in range(rng.choice((2, 3, 3, 4, 4, 5))))


def write(
    canvas: Canvas,
    xy: tuple[int, int],
    text: str,
    face: str,
    size: int,
    ink: Ink,
    limit: int,
    spell: bool = True,
) -> Rect | None:
    """Write one line; return its box (px), or None (and draw nothing) where it would pass x = `limit`.

    With `spell` its characters are recorded in `canvas.glyphs`, all but spaces.
    """
    f = font(face, size)
    box = canvas.draw.textbbox(xy, text, font=f)
    if box[2] > limit:
        return None
    canvas.draw.text(xy, text, font=f, fill=ink)
    left = float(xy[0])
    for char in text if spell else "":
        right = left + _advance(face, size, char)
        if not char.isspace():
            canvas.glyphs.append((char, (int(left), int(box[1]), int(right), int(box[3]))))
        left = right
    return int(box[0]), int(box[1]), int(box[2]), int(box[3])


def _around(boxes: tuple[Rect, ...]) -> Rect:
    """Return the smallest box around all boxes."""
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)


@lru_cache(maxsize=20_000)
def _advance(face: str, size: int, char: str) -> float:
    """Return the width of a character in px."""
    return font(face, size).getlength(char)


def cased(rng: random.Random, word: str) -> str:
    """Return a label capitalised or in capitals."""
    return rng.choice((word.capitalize(), word.capitalize(), word.upper()))


def _fitting(rng: random.Random, width: int, stacked: bool) -> int:
    """Return a font size (px) at which a long label and a value fit into `width`."""
    return min(rng.randint(25, 33), max(20, int(width / (6.5 if stacked else 8.8))))


def fields(canvas: Canvas, rect: Rect, labels: list[str], stacked: bool) -> int:
    """Draw lines `Label: VALUE`, or label above value; labels are removed from the list as they are used.

    Returns:
        The y (px) below the last line.
    """
    rng = canvas.rng
    x0, y0, x1, y1 = rect
    face, size = rng.choice(canvas.fonts), _fitting(rng, x1 - x0, stacked)
    value_face = face if rng.random() < 0.6 else rng.choice(canvas.fonts)
    ink = canvas.ink()
    mark = rng.choice((":", ":", "", " -"))
    if rng.random() < 0.5:
        canvas.draw.rectangle(rect, fill=canvas.paper(), outline=ink if rng.random() < 0.5 else None)
    pitch = int(size * (2.7 if stacked else rng.uniform(1.4, 1.8)))
    x, y = x0 + rng.randint(4, 14), y0 + rng.randint(4, 14)
    column = (x1 - x0) // max(1, (x1 - x0) // int(11 * size))
    lowest = y
    tab = rng.choice((0, int(size * 5.2)))
    for left in range(x, x1 - 110, column):
        right, line = min(left + column - 8, x1 - 2), y
        while labels and line + (2.2 * size if stacked else 1.2 * size) <= y1 - 2:
            value = code(rng)
            word = cased(rng, labels[-1]) + mark
            size_v = size if not stacked else min(34, size + 2)
            wide = font(face, size).getlength(word)
            at = (
                (left, line + int(1.15 * size))
                if stacked
                else (left + int(max(wide + 0.5 * size, tab)), line)
            )
            if at[0] + font(value_face, size_v).getlength(value) > right or left + wide > right:
                break
            a = write(canvas, (left, line), word, face, size, ink, right)
            b = write(canvas, at, value, value_face, size_v, ink, right)
            if a is None or b is None:
                break
            canvas.facts.append(Fact("value", labels.pop(), tuple(value), (a, b), canvas.last(len(value))))
            line += pitch
            lowest = max(lowest, line)
    return lowest


def table(canvas: Canvas, rect: Rect, labels: list[str]) -> int:
    """Draw a ruled table, names left and values right; labels are removed from the list as they are used.

    Returns:
        The y (px) below it.
    """
    rng = canvas.rng
    x0, y0, x1, y1 = rect
    x1 = min(x1, x0 + rng.randint(330, 480))
    face, size, ink = rng.choice(canvas.fonts), _fitting(rng, x1 - x0 - 24, stacked=False), canvas.ink()
    row = int(size * rng.uniform(1.5, 1.9))
    split = x0 + int((x1 - x0) * rng.uniform(0.53, 0.6))
    rows = min(len(labels), (y1 - y0) // row)
    done = 0
    rule = tuple((c + p) // 2 for c, p in zip(ink, canvas.paper(), strict=True))
    stripe = canvas.paper()
    for i in range(rows):
        top = y0 + i * row
        value, word = code(rng), cased(rng, labels[-1])
        if x0 + 8 + font(face, size).getlength(word) > split - 4:
            break
        if split + 10 + font(face, size).getlength(value) > x1 - 2:
            break
        if i % 2:
            canvas.draw.rectangle((x0, top, x1, top + row), fill=stripe)
        a = write(canvas, (x0 + 8, top + (row - size) // 2 - 2), word, face, size, ink, split)
        b = write(canvas, (split + 10, top + (row - size) // 2 - 2), value, face, size, ink, x1)
        canvas.draw.line((x0, top + row, x1, top + row), fill=rule, width=1)
        assert a is not None, "room was checked before"
        assert b is not None, "room was checked before"
        canvas.facts.append(Fact("table", labels.pop(), tuple(value), (a, b), canvas.last(len(value))))
        done = i + 1
    if done:
        canvas.draw.line((split, y0, split, y0 + done * row), fill=rule, width=2)
        canvas.draw.rectangle((x0, y0, x1, y0 + done * row), outline=rule)
    return y0 + done * row


def title(canvas: Canvas, rect: Rect) -> None:
    """Draw a title of two large words."""
    rng = canvas.rng
    x0, y0, x1, y1 = rect
    words = (rng.choice(TITLE_FIRST), rng.choice(TITLE_SECOND))
    text, face = " ".join(words), rng.choice(canvas.fonts)
    size = min(rng.randint(40, 52), y1 - y0 - 6)
    while size > 18 and font(face, size).getlength(text) > x1 - x0 - 8:
        size -= 2
    room = int(x1 - x0 - font(face, size).getlength(text))
    if room < 2:
        return
    ink = canvas.ink()
    box = write(canvas, (x0 + rng.randint(0, max(0, min(room - 1, 200))), y0), text, face, size, ink, x1 + 1)
    if box is None:
        return
    if rng.random() < 0.4:
        canvas.draw.line((x0, box[3] + 6, x1, box[3] + 6), fill=ink, width=2)
    glyphs = canvas.last(len(words[0]) + len(words[1]))
    spans = (_around(glyphs[: len(words[0])]), _around(glyphs[len(words[0]) :]))
    canvas.facts.append(Fact("title", "title", (words[0], " " + words[1]), (box,), spans))


def note(canvas: Canvas, rect: Rect) -> None:
    """Draw a pale coloured note with two words, one below the other."""
    rng = canvas.rng
    x0, y0, x1, y1 = rect
    words = (rng.choice(TITLE_FIRST), rng.choice(TITLE_SECOND))
    face, size = rng.choice(canvas.fonts), rng.randint(26, 34)
    longest = max(font(face, size).getlength(w) for w in words)
    w, h = int(longest + 32), int(size * 2.6 + 24)
    if w > x1 - x0 or h > y1 - y0:
        return
    left, top = rng.randint(x0, x1 - w), rng.randint(y0, y1 - h)
    pale = rng.choice(((255, 246, 150), (255, 222, 150), (205, 245, 190)))
    canvas.draw.rectangle((left + 4, top + 4, left + w + 4, top + h + 4), fill=(150, 150, 150))
    canvas.draw.rectangle((left, top, left + w, top + h), fill=pale)
    a = write(canvas, (left + 14, top + 8), words[0], face, size, (50, 45, 30), x1 + 9)
    b = write(canvas, (left + 14, top + 10 + int(size * 1.25)), words[1], face, size, (50, 45, 30), x1 + 9)
    assert a is not None, "room was checked before"
    assert b is not None, "room was checked before"
    canvas.facts.append(Fact("note", "note", (words[0], " " + words[1]), (a, b), (a, b)))


def faint(canvas: Canvas, rect: Rect) -> None:
    """Draw a code in grey on grey, beside a bright red square."""
    rng = canvas.rng
    x0, y0, x1, y1 = rect
    face, size, text = rng.choice(canvas.fonts), rng.randint(26, 34), code(rng)
    wide = int(font(face, size).getlength(text))
    side = min(rng.randint(70, 120), y1 - y0 - 8, x1 - x0 - wide - 40)
    if side < 36:
        return
    paper = rng.randint(196, 214)
    level = paper - rng.randint(34, 52)
    canvas.draw.rectangle(rect, fill=(paper, paper, paper))
    red_first = rng.random() < 0.5
    x_red = x0 + 8 if red_first else x1 - side - 8
    low, high = (x0 + side + 20, x1 - wide - 8) if red_first else (x0 + 8, x1 - side - wide - 20)
    x_text = rng.randint(low, high)
    y_red = rng.randint(y0 + 4, y1 - side - 4)
    canvas.draw.rectangle((x_red, y_red, x_red + side, y_red + side), fill=(255, 20, 20))
    # The distractor is a red square like any other: it may be counted and asked for.
    canvas.things.append(Thing("red", "square", x_red + side // 2, y_red + side // 2, side))
    y_text = rng.randint(y0 + 4, max(y0 + 4, y1 - int(size * 1.3) - 4))
    box = write(canvas, (x_text, y_text), text, face, size, (level, level, level), x1 + 1)
    assert box is not None, "room was checked before"
    canvas.facts.append(Fact("gray", "gray", tuple(text), (box,), canvas.last(len(text))))


def small(canvas: Canvas, rect: Rect) -> None:
    """Draw a code in small print inside a thin frame."""
    rng = canvas.rng
    x0, y0, x1, y1 = rect
    face, size, text, ink = rng.choice(canvas.fonts), rng.randint(17, 19), code(rng), canvas.ink()
    wide = int(font(face, size).getlength(text))
    if wide + 60 > x1 - x0 or y1 - y0 < 40:
        return
    x, y = rng.randint(x0 + 16, x1 - wide - 30), rng.randint(y0 + 6, y1 - 34)
    canvas.draw.rectangle((x - 10, y - 5, x + wide + 10, y + size + 9), outline=ink)
    box = write(canvas, (x, y), text, face, size, ink, x1)
    assert box is not None, "room was checked before"
    canvas.facts.append(Fact("small", "small", tuple(text), (box,), canvas.last(len(text))))


def filler_word(rng: random.Random) -> str:
    """Return a word of running text."""
    return rng.choice(FILLER)


def paragraph(canvas: Canvas, rect: Rect, word: Callable[[random.Random], str] = filler_word) -> None:
    """Draw running text that no question is about.

    Args:
        canvas: the page.
        rect: the block's rectangle, in px.
        word: makes the words, of common ones unless it is given.
    """
    rng = canvas.rng
    x0, y0, x1, y1 = rect
    face, size, ink = rng.choice(canvas.fonts), rng.randint(15, 26), canvas.ink()
    pitch, y = int(size * rng.uniform(1.25, 1.5)), y0 + 4
    space = font(face, size).getlength(" ")
    while y + size * 1.2 < y1:
        words, wide = [], 0.0
        while True:
            text = word(rng)
            wide += font(face, size).getlength(text) + space
            if wide > x1 - x0 - 8:
                break
            words.append(text)
        write(canvas, (x0 + 4, y), " ".join(words), face, size, ink, x1 + size, spell=False)
        y += pitch


def texture(canvas: Canvas, rect: Rect) -> None:
    """Draw a pattern that no question is about: noise, hatching, dots, waves or blotches."""
    rng = canvas.rng
    x0, y0, x1, y1 = rect
    w, h = x1 - x0, y1 - y0
    kind = rng.choice(("noise", "hatch", "dots", "waves", "blotches"))
    a, b = np.array(canvas.paper(30), float), np.array(canvas.paper(60), float)
    b = b * rng.uniform(0.55, 0.85)
    noise = np.random.default_rng(rng.getrandbits(32))
    yy, xx = np.mgrid[0:h, 0:w].astype(float)
    if kind == "noise":
        mix = noise.random((h, w))
    elif kind == "blotches":
        coarse = Image.fromarray((noise.random((max(2, h // 24), max(2, w // 24))) * 255).astype("uint8"))
        mix = np.asarray(coarse.resize((w, h), Image.Resampling.BICUBIC), float) / 255
    else:
        t, p = rng.uniform(0, math.pi), rng.uniform(7, 22)
        u, v = xx * math.cos(t) + yy * math.sin(t), yy * math.cos(t) - xx * math.sin(t)
        if kind == "hatch":
            mix = (np.mod(u, p) < 2).astype(float)
        elif kind == "dots":
            mix = ((np.mod(u, p) - p / 2) ** 2 + (np.mod(v, p) - p / 2) ** 2 < (p / 4) ** 2).astype(float)
        else:
            mix = 0.5 + 0.5 * np.sin(u * 2 * math.pi / p + 2 * np.sin(v / p))
    pixels = a + (b - a) * mix[..., None]
    canvas.image.paste(Image.fromarray(pixels.clip(0, 255).astype("uint8")), (x0, y0))


def draw_thing(canvas: Canvas, thing: Thing) -> None:
    """Draw one coloured shape, a little turned."""
    fill = shaded(canvas.rng, thing.colour)
    angle = 0.0 if thing.shape in ROUND else canvas.rng.uniform(-0.15, 0.15)
    draw_shape(canvas, thing, fill, angle, ring=6)


def shaded(rng: random.Random, colour: str) -> Ink:
    """Return a shade of a colour of COLOURS."""
    r, g, b = (min(255, max(0, level + rng.randint(-12, 12))) for level in COLOURS[colour])
    return r, g, b


def draw_shape(canvas: Canvas, thing: Thing, fill: Ink, angle: float, ring: int) -> None:
    """Draw a shape, turned by `angle` in radians, and record it in `canvas.things`.

    `ring` is the least width in px of the line of a ring.
    """
    r = thing.size / 2
    if thing.shape == "circle":
        canvas.draw.ellipse(thing.box, fill=fill)
    elif thing.shape == "ring":
        canvas.draw.ellipse(thing.box, outline=fill, width=max(ring, int(0.34 * r)))
    else:
        canvas.draw.polygon(outline(thing.shape, thing.x, thing.y, r, angle), fill=fill)
    canvas.things.append(thing)


def scene(canvas: Canvas, rect: Rect, wanted: list[tuple[str, str]]) -> None:
    """Draw coloured shapes among grey lines; (colour, shape) pairs are removed from the list as they fit."""
    rng = canvas.rng
    x0, y0, x1, y1 = rect
    if rng.random() < 0.35:
        texture(canvas, rect)
    elif rng.random() < 0.6:
        canvas.draw.rectangle(rect, fill=canvas.paper(30))
    lines = (x1 - x0) * (y1 - y0) // 5000
    for _ in range(lines):
        v = rng.randint(110, 200)
        ax, ay = rng.randint(x0, x1), rng.randint(y0, y1)
        reach = rng.randint(10, 70)
        bx, by = (
            min(x1, max(x0, ax + rng.randint(-reach, reach))),
            min(y1, max(y0, ay + rng.randint(-reach, reach))),
        )
        canvas.draw.line((ax, ay, bx, by), fill=(v, v, v), width=rng.choice((1, 2, 3)))
    boxes: list[Rect] = []
    for _ in range(6 * len(wanted) + 6):
        if not wanted:
            return
        size = int(42 * 2 ** rng.uniform(0, 1.35))
        r = size // 2 + 5
        if x1 - x0 < 2 * r + 2 or y1 - y0 < 2 * r + 2:
            continue
        x, y = rng.randint(x0 + r, x1 - r), rng.randint(y0 + r, y1 - r)
        box = (x - r, y - r, x + r, y + r)
        if any(b[0] < box[2] and box[0] < b[2] and b[1] < box[3] and box[1] < b[3] for b in boxes):
            continue
        boxes.append(box)
        colour, shape = wanted.pop()
        draw_thing(canvas, Thing(colour, shape, x, y, size))
