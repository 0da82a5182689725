"""Pages of long text, drawn from a seed: labelled values among running text.

    page = draw_text_page(seed=7, size=(1024, 1024), filler="strings")
    page.questions[0].text     "What is written next to invoice?"

A label stands on the page once. A value is a string of 2 to 5 random characters, which can't be guessed from
some of its letters; a note holds two words.
"""

from __future__ import annotations

import random

from arr_coc_lab.world import blocks
from arr_coc_lab.world.canvas import Canvas, Fact, Rect, blank_canvas
from arr_coc_lab.world.fonts import HELD_OUT_FONTS, TRAIN_FONTS
from arr_coc_lab.world.page import Page, check_size, page_seed
from arr_coc_lab.world.questions import Question
from arr_coc_lab.world.vocabulary import LABELS

FILLERS: tuple[str, ...] = ("words", "strings", "none")
"""Between the labelled values: common words, random strings, or nothing (then the page is a list)."""
AFTER = "What is written next to {label}?"
"""The question for the value after a label, one of those that the bundled model was trained on."""
NOTE = "What does the note say?"
MARGIN, COLUMN, BLOCK = 20, 480, 165
"""Px: the border of a page; the width of a column and the height of a block of text, at least."""
LINES = 6
"""The most labelled values of a block."""


def draw_text_page(
    seed: int, size: tuple[int, int] = (1024, 1024), split: str = "test", filler: str = "words"
) -> Page:
    """Draw one page of text, fixed by its arguments.

    Args:
        seed: 0 or more.
        size: width and height in pixels, each 512 to 4096.
        split: "train", "validation" or "test"; only "test" has held-out fonts.
        filler: one of FILLERS.

    Raises:
        ValueError: an unknown split or filler, a negative seed, a size out of range.
    """
    check_size(size, 512)
    if filler not in FILLERS:
        raise ValueError(f"filler {filler!r} is unknown; use one of {', '.join(FILLERS)}")
    rng = random.Random(page_seed(seed, split))
    fonts = HELD_OUT_FONTS if split == "test" and rng.random() < 0.3 else TRAIN_FONTS
    canvas = blank_canvas(size, rng, fonts, dark=rng.random() < 0.12)
    labels = rng.sample(LABELS, len(LABELS))
    if filler == "none":
        _list(canvas, size, labels)
    else:
        _running(canvas, size, labels, filler)
    questions = [_question(fact) for fact in canvas.facts]
    facts, glyphs = tuple(canvas.facts), tuple(canvas.glyphs)
    return Page(canvas.image, tuple(questions), facts, (), glyphs, f"text: {filler}", seed)


def transcript(page: Page) -> str:
    """Return the labelled values of a page in reading order, one "label VALUE" a line."""
    lines = [fact for fact in page.facts if fact.family == "value"]  # in the order in which they were drawn
    return "\n".join(f"{fact.label} {''.join(fact.value)}" for fact in lines)


def _running(canvas: Canvas, size: tuple[int, int], labels: list[str], filler: str) -> None:
    """Blocks of labelled values alternating with running text, a note in the place of one of the latter."""
    rng, (width, height) = canvas.rng, (side - 2 * MARGIN for side in size)
    columns, rows = max(1, width // COLUMN), max(2, height // BLOCK)
    wide, high = width // columns, height // rows
    places = [divmod(number, columns) for number in range(rows * columns)]
    note = rng.choice([(row, column) for row, column in places if (row + column) % 2])
    for row, column in places:
        x, y = MARGIN + column * wide, MARGIN + row * high
        rect = (x, y, x + wide - 16, y + high - 8)
        if (row, column) == note:
            blocks.note(canvas, rect)
            continue
        if (row + column) % 2 == 0:
            rest = [labels.pop() for _ in range(min(LINES, len(labels)))]
            lowest = blocks.fields(canvas, rect, rest, stacked=False)
            labels += rest  # those that did not fit are left for the next block
            rect = (rect[0], lowest + 10, rect[2], rect[3])
        if rect[3] - rect[1] > 24:
            blocks.paragraph(canvas, rect, blocks.code if filler == "strings" else blocks.filler_word)


def _list(canvas: Canvas, size: tuple[int, int], labels: list[str]) -> None:
    """Labelled values alone, in columns from top to bottom."""
    width, height = size
    columns = max(1, (width - 2 * MARGIN) // COLUMN)
    wide = (width - 2 * MARGIN) // columns
    for column in range(columns):
        x = MARGIN + column * wide
        share = -(-len(labels) // (columns - column))
        rest = [labels.pop() for _ in range(share)]
        rect: Rect = (x, MARGIN, x + wide - 16, height - MARGIN)
        blocks.fields(canvas, rect, rest, stacked=False)
        labels += rest


def _question(fact: Fact) -> Question:
    text = NOTE if fact.family == "note" else AFTER.format(label=fact.label)
    return Question(text, "".join(fact.value), fact.family, fact.boxes, fact.value)
