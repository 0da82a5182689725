"""Pages of running text with one thing that holds much in little room: a formula, code or a diagram; from a
seed.

    page = draw_dense_page(seed=7, size=(1024, 1024), thing="formula")
    page.questions[0].text, page.questions[0].evidence     "What is the formula?", the formula's box
"""

from __future__ import annotations

import io
import random

from PIL import Image, ImageOps

from arr_coc_lab.world import blocks
from arr_coc_lab.world.browser.phrases import phrase
from arr_coc_lab.world.canvas import Canvas, Ink, Rect, blank_canvas
from arr_coc_lab.world.fonts import TRAIN_FONTS, font
from arr_coc_lab.world.page import Page, check_size, page_seed
from arr_coc_lab.world.questions import Question
from arr_coc_lab.world.vocabulary import LABELS

THINGS: tuple[str, ...] = ("formula", "code", "diagram")
"""What stands among the text."""
ASKED = {
    "formula": (
        "What is the formula?", "Read the formula.", "Read the small text in the formula.",
        "Which equation is given?",
        "Copy the equation.", "What does the formula say?",
    ),
    "code": (
        "Read the code.", "What does the code say?", "Copy the code snippet.", "What is in the script?",
        "Transcribe the code.", "Show me the snippet.",
    ),
    "diagram": (
        "What does the diagram say?", "Read the diagram.", "Show me the diagram.", "What is in the figure?",
        "Read the small text in the diagram.", "Where is the drawing?",
    ),
}  # fmt: skip
TERMS = ("x_{%s}", "y^{%s}", r"\alpha_{%s}", r"\beta^{%s}", "k_{%s}", r"\sigma^{%s}")
SMALL = ("i", "j", "n", "2", "k+1", "n-1", "max", "0", "t")
MARGIN = 28  # px around the page


def draw_dense_page(
    seed: int, size: tuple[int, int] = (1024, 1024), split: str = "train", thing: str | None = None
) -> Page:
    """Draw one page of text with a formula, code or a diagram, fixed by its arguments.

    Args:
        seed: 0 or more.
        size: width and height in pixels, each 512 to 4096.
        split: "train", "validation" or "test".
        thing: one of THINGS; None: decided by the seed.

    Raises:
        ValueError: an unknown split or thing, a negative seed, a size out of range.
    """
    width, height = size
    check_size(size, 512)
    if thing is not None and thing not in THINGS:
        raise ValueError(f"thing {thing!r} is unknown; use one of {', '.join(THINGS)}, or None")
    rng = random.Random(page_seed(seed, split))
    chosen = rng.choice(THINGS)
    thing = chosen if thing is None else thing
    canvas = blank_canvas(size, rng, TRAIN_FONTS, dark=rng.random() < 0.12)
    right = width - MARGIN
    blocks.title(canvas, (MARGIN, MARGIN, right, MARGIN + 64))
    top = MARGIN + 90 + round(rng.random() * 0.35 * height)
    high = rng.randint(130, 230)
    blocks.paragraph(canvas, (MARGIN, MARGIN + 76, right, top - 16))
    rect = (MARGIN + rng.randint(20, width // 4), top, right - rng.randint(20, width // 4), top + high)
    box = {"formula": _formula, "code": _code, "diagram": _diagram}[thing](canvas, rect)
    blocks.paragraph(canvas, (MARGIN, top + high + 16, right, height - MARGIN))
    questions = [
        Question(text, f"the {thing}", "implied", (box,), (f"the {thing}",))
        for text in rng.sample(ASKED[thing], 2)
    ]
    questions.append(Question(phrase(rng, "global", split=split), "", "global", (), ()))
    return Page(
        canvas.image, tuple(questions), tuple(canvas.facts), (), tuple(canvas.glyphs), f"dense: {thing}", seed
    )


def _formula(canvas: Canvas, rect: Rect) -> Rect:
    """Return a displayed formula with small indices, set as TeX sets it, in the middle of a rectangle."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import math_to_image

    rng, (x0, y0, x1, y1) = canvas.rng, rect

    def term() -> str:
        return rng.choice(TERMS) % rng.choice(SMALL)

    def sum_of() -> str:
        return rf"\sum_{{{rng.choice(('i', 'j', 'k'))}={rng.choice('01')}}}^{{{rng.choice(('n', 'N', 'm'))}}}"

    fraction = rf"\frac{{{term()} + {term()}}}{{\sqrt{{{term()} - {term()}}}}}"
    first, sign = f"{term()} = {sum_of()}", rng.choice(("+", "-"))
    text = rf"${first} {fraction} {sign} \int_{{0}}^{{{rng.choice(SMALL)}}} {term()} dt$"
    file = io.BytesIO()
    math_to_image(text, file, prop=FontProperties(size=rng.randint(15, 21)), dpi=144, format="png")
    drawn = Image.open(file).convert("L")
    drawn.thumbnail((x1 - x0, y1 - y0))
    left, top = (x0 + x1 - drawn.width) // 2, (y0 + y1 - drawn.height) // 2
    mask = ImageOps.invert(drawn)
    canvas.image.paste(canvas.ink(), (left, top), mask)
    x, y, right, bottom = mask.point(lambda level: 255 if level > 40 else 0).getbbox() or (0, 0, 1, 1)
    return left + x, top + y, left + right, top + bottom


def _code(canvas: Canvas, rect: Rect) -> Rect:
    """Lines of code in a frame of its own paper; fills a rectangle."""
    rng, (x0, y0, x1, y1) = canvas.rng, rect
    size = rng.randint(15, 19)
    face = font("DejaVuSansMono.ttf", size)
    inks = [canvas.ink(), _mixed(canvas, (160, 60, 60)), _mixed(canvas, (50, 90, 180))]
    canvas.draw.rectangle(rect, fill=canvas.paper(36), outline=canvas.ink())
    depth, y = 0, y0 + 8
    while y + 1.4 * size < y1:
        name, other = rng.sample(LABELS, 2)
        line = rng.choice(
            (f"{name} = {other}[{rng.randint(0, 9)}]", f"if {name} > {other}:", f"return {name}(x)")
        )
        x = x0 + 12 + depth * 2 * face.getlength(" ")
        for number, word in enumerate(line.split(" ")):
            if x + face.getlength(word) > x1 - 8:
                break
            canvas.draw.text((x, y), word, font=face, fill=inks[number % 3])
            x += face.getlength(word + " ")
        depth = depth + 2 if line.endswith(":") else max(0, depth - rng.randint(0, 2))
        y += round(1.35 * size)
    return rect


def _mixed(canvas: Canvas, ink: Ink) -> Ink:
    """Return a coloured ink that shows on the page's paper."""
    r, g, b = ((level + 255) // 2 if canvas.dark else level for level in ink)
    return r, g, b


def _diagram(canvas: Canvas, rect: Rect) -> Rect:
    """Boxes with small labels, joined by arrows; fills a rectangle."""
    rng, (x0, y0, x1, y1) = canvas.rng, rect
    ink, count = canvas.ink(), max(2, min(5, (x1 - x0) // 170))
    face, wide = font(rng.choice(canvas.fonts), rng.randint(13, 16)), (x1 - x0) // count
    rows = 2 if y1 - y0 > 120 else 1
    high = (y1 - y0) // rows
    for row in range(rows):
        for column in range(count):
            left, top = x0 + column * wide, y0 + row * high
            box = (left + 2, top + 8, left + wide - 40, top + high - 14)
            if rng.random() < 0.5:
                canvas.draw.rectangle(box, outline=ink, width=2, fill=canvas.paper(40))
            else:
                canvas.draw.ellipse(box, outline=ink, width=2, fill=canvas.paper(40))
            middle = ((box[0] + box[2]) // 2, (box[1] + box[3]) // 2)
            canvas.draw.text(middle, rng.choice(LABELS), font=face, fill=ink, anchor="mm")
            if column + 1 < count:
                canvas.draw.line((box[2], middle[1], box[2] + 38, middle[1]), fill=ink, width=2)
                tip = (box[2] + 38, middle[1])
                canvas.draw.polygon([tip, (tip[0] - 9, tip[1] - 5), (tip[0] - 9, tip[1] + 5)], fill=ink)
            if row + 1 < rows and rng.random() < 0.6:
                canvas.draw.line((middle[0], box[3], middle[0], box[3] + 22), fill=ink, width=2)
    return rect
