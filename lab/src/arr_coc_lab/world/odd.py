"""Scenes of like things, one of which is odd, drawn from a seed; questions of several families about each.

    page = draw_odd_page(seed=7, size=(1024, 1024), split="test", way="size")
    page.questions[0].text, page.questions[0].evidence     "Which one is different?", the box of the odd one

Asked are what is odd (family "anomaly", evidence: the odd one, or the gap where one is missing), what all of
it shows ("global", without evidence) and the families of drawn pages, so that kinds of questions are mixed.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from arr_coc_lab.world import blocks
from arr_coc_lab.world.browser.phrases import phrase
from arr_coc_lab.world.canvas import Canvas, Ink, Rect, Thing, blank_canvas
from arr_coc_lab.world.fonts import TRAIN_FONTS
from arr_coc_lab.world.page import Page, check_size, page_seed
from arr_coc_lab.world.questions import Question, ask_all
from arr_coc_lab.world.vocabulary import COLOURS, SHAPES

WAYS: tuple[str, ...] = ("colour", "shape", "size", "turned", "missing")
"""In which a thing is odd."""
# By how much a shape is turned to look different, in turns.
TURNS = {"square": 0.125, "triangle": 0.5, "cross": 0.125, "diamond": 0.25}
ALIKE = ({"square", "diamond"}, {"circle", "ring"}, {"star", "cross"})
"""Shapes that differ too little at some turn or size to be told apart at a glance."""
DIFFERENT = (
    "Which one is different?",
    "Which {shape} is different from the others?",
    "Which one is not like the others?",
    "Where is the odd one?",
    "Are there any anomalies?",
    "Is any {shape} unlike the rest?",
)
MISSING = (
    "Where is one missing?",
    "Which place is empty?",
    "Where is the gap?",
    "Is a {shape} missing?",
    "What is unusual here?",
    "Is anything missing?",
)
LIKE = 4  # questions of the families of drawn pages, at most


class Post(NamedTuple):
    """A place for a thing: its centre and the diameter of what stands there, in px."""

    x: int
    y: int
    size: int


def draw_odd_page(
    seed: int, size: tuple[int, int] = (1024, 1024), split: str = "train", way: str | None = None
) -> Page:
    """Draw one scene of 16 to 48 like things with one odd, fixed by its arguments.

    Args:
        seed: 0 or more.
        size: width and height in pixels, each 256 to 4096.
        split: "train", "validation" or "test"; only "test" has held-out wordings.
        way: one of WAYS; None: decided by the seed.

    Raises:
        ValueError: an unknown split or way, a negative seed, a size out of range.
    """
    width, height = size
    check_size(size, 256)
    if way is not None and way not in WAYS:
        raise ValueError(f"way {way!r} is unknown; use one of {', '.join(WAYS)}, or None")
    rng = random.Random(page_seed(seed, split))
    chosen = rng.choice(WAYS)
    way = chosen if way is None else way
    canvas = blank_canvas(size, rng, TRAIN_FONTS, dark=rng.random() < 0.12)
    if rng.random() < 0.15:
        blocks.texture(canvas, (0, 0, width, height))
    usual = rng.choice([shape for shape in SHAPES if way != "turned" or shape in TURNS])
    colour = rng.choice(list(COLOURS))
    spots, inner = _spots(rng, size, even=way == "missing" or rng.random() < 0.6)
    at = rng.choice(inner)
    fill = blocks.shaded(rng, colour)
    turn = rng.choice((0.0, 0.0, rng.uniform(-0.04, 0.04)))
    for number, spot in enumerate(spots):
        if number != at:
            _draw(canvas, Thing(colour, usual, *spot), fill, turn)
    box = _draw_odd(canvas, way, Thing(colour, usual, *spots[at]), fill, turn)
    questions = _questions(canvas, way, usual, box, split)
    return Page(canvas.image, questions, (), tuple(canvas.things), (), f"odd: {way}", seed)


def _draw(canvas: Canvas, thing: Thing, fill: Ink, turn: float) -> None:
    """Draw a thing, turned by some turns."""
    blocks.draw_shape(canvas, thing, fill, 2 * math.pi * turn, ring=3)


def _draw_odd(canvas: Canvas, way: str, like: Thing, fill: Ink, turn: float) -> Rect:
    """Draw the odd one in the place of a thing like the others; the box (px) of what is odd."""
    rng = canvas.rng
    if way == "missing":
        return like.box
    if way == "turned":
        _draw(canvas, like, fill, turn + TURNS[like.shape])
        return like.box
    colour, shape, size = like.colour, like.shape, like.size
    if way == "colour":
        colour = rng.choice([name for name in COLOURS if name != colour])
        fill = blocks.shaded(rng, colour)
    elif way == "shape":
        shape = rng.choice([s for s in SHAPES if s != shape and {s, shape} not in ALIKE])
    else:
        size = round(size * rng.choice((0.45, 0.55, 1.5)))
    odd = Thing(colour, shape, like.x, like.y, size)
    _draw(canvas, odd, fill, turn)
    return odd.box


def _spots(rng: random.Random, size: tuple[int, int], even: bool) -> tuple[list[Post], list[int]]:
    """Places in rows and columns, `even` or a little scattered, and the numbers of those not at the rim."""
    width, height = size
    columns, rows = rng.randint(4, 8), rng.randint(4, 6)
    across, down = width / columns, height / rows
    diameter = round(min(across, down) * rng.uniform(0.35, 0.55))
    loose = 0.0 if even else 0.2 * (min(across, down) - diameter)
    spots = [
        Post(
            round((column + 0.5) * across + rng.uniform(-loose, loose)),
            round((row + 0.5) * down + rng.uniform(-loose, loose)),
            diameter,
        )
        for row in range(rows)
        for column in range(columns)
    ]
    inner = [row * columns + column for row in range(1, rows - 1) for column in range(1, columns - 1)]
    return spots, inner


def _questions(canvas: Canvas, way: str, shape: str, box: Rect, split: str) -> tuple[Question, ...]:
    """Return what is odd, twice; what all of it shows; and some questions of the families of drawn pages."""
    rng = canvas.rng
    odd = canvas.things[-1]
    answer = "one is missing" if way == "missing" else f"the {odd.colour} {odd.shape}"
    kinds = [MISSING, MISSING] if way == "missing" else [DIFFERENT]
    texts = [rng.choice(wordings).format(shape=shape) for wordings in kinds]
    texts += [] if way == "missing" else [phrase(rng, "anomaly", split=split)]
    questions = [Question(text, answer, "anomaly", (box,), (answer,)) for text in dict.fromkeys(texts)]
    questions.append(Question(phrase(rng, "global", split=split), "", "global", (), ()))
    questions += ask_all(rng, [], canvas.things, canvas.image.width)[:LIKE]
    return tuple(questions)
