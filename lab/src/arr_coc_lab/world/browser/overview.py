"""A contact sheet of pages: small pictures side by side, with the evidence of some questions."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from PIL import Image, ImageDraw

from arr_coc_lab.world.browser.cache import CachedPage
from arr_coc_lab.world.fonts import font

SIDE, FOOT, GAP = 420, 66, 10
"""Side of a picture, height of its questions and what lies between, in px."""
INKS = ("#d62728", "#1f77b4", "#2ca02c")
"""Colours of the questions of a page."""


def overview(pages: Sequence[CachedPage]) -> Image.Image:
    """Return the contact sheet of some pages; the questions below a page have the colours of their boxes."""
    columns = max(1, math.ceil(math.sqrt(len(pages))))
    rows = max(1, math.ceil(len(pages) / columns))
    size = (columns * (SIDE + GAP) + GAP, rows * (SIDE + FOOT + GAP) + GAP)
    sheet = Image.new("RGB", size, "#e8e8e8")
    for i, page in enumerate(pages):
        row, column = divmod(i, columns)
        sheet.paste(_tile(page), (GAP + column * (SIDE + GAP), GAP + row * (SIDE + FOOT + GAP)))
    return sheet


def _tile(page: CachedPage) -> Image.Image:
    """Return a page with the boxes of some of its questions, and these below."""
    tile = Image.new("RGB", (SIDE, SIDE + FOOT), "white")
    image = page.image
    scale = SIDE / max(image.size)
    tile.paste(image.resize([max(1, round(side * scale)) for side in image.size]))
    draw, face = ImageDraw.Draw(tile), font("DejaVuSans.ttf", 12)
    pointed = [question for question in page.questions if question.evidence]
    chosen = random.Random(page.seed).sample(pointed, min(len(INKS), len(pointed)))
    for i, (question, ink) in enumerate(zip(chosen, INKS, strict=False)):
        for x0, y0, x1, y1 in question.evidence:
            draw.rectangle(
                (x0 * scale - 1, y0 * scale - 1, x1 * scale + 1, y1 * scale + 1), outline=ink, width=2
            )
        text = f"{question.kind}: {question.text}"
        while face.getlength(text) > SIDE - 8:
            text = text[:-2].rstrip(" …") + "…"
        draw.text((4, SIDE + 4 + 20 * i), text, fill=ink, font=face)
    return tile
