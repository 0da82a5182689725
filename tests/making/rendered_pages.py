"""A cache of pages as a browser would have rendered them, drawn with Pillow: no browser is needed."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image, ImageDraw

from arr_coc_lab.world.browser.cache import write
from arr_coc_lab.world.browser.chromium import Word
from arr_coc_lab.world.browser.page import Inquired, RenderedPage
from arr_coc_lab.world.fonts import TRAIN_FONTS, font

FIELDS = (("Amount due", "$1,284.50"), ("Sold by", "Marta Köhler"), ("Sent on", "2024-03-17"))


def rendered_page(seed: int, split: str) -> RenderedPage:
    """Three labelled values at 16 px."""
    image, face = Image.new("RGB", (320, 160), "white"), font(TRAIN_FONTS[0], 16)
    pen, words, questions = ImageDraw.Draw(image), [], []
    for row, (label, value) in enumerate(FIELDS):
        y = 20 + 40 * row
        boxes = []
        for text, x in ((label, 10.0 + seed), (value, 150.0 + seed)):
            own = []
            for part in text.split():
                edges = tuple(x + face.getlength(part[:i]) for i in range(len(part) + 1))
                own.append(Word(part, (x, y - 2, edges[-1], y + 18), 16.0, edges))
                pen.text((x, y), part, "black", face)
                x = edges[-1] + 5
            words += own
            boxes.append((own[0].box[0], y - 2.0, own[-1].box[2], y + 18.0))
        questions.append(Inquired("value", f"What is the {label}?", value, tuple(boxes)))
    questions.append(Inquired("global", "Describe the page.", "", ()))
    stream = io.BytesIO()
    image.save(stream, "png")
    return RenderedPage(stream.getvalue(), tuple(questions), tuple(words), "form", None, seed, split)


def fill(folder: Path) -> Path:
    """Four pages of each of two splits."""
    for split in ("train", "test"):
        (folder / split).mkdir(parents=True)
        for seed in range(4):
            write(folder / split / str(seed), rendered_page(seed, split))
    return folder
