"""Easy crops: lines of words in a few plain faces and middle sizes, black on white, drawn with Pillow.

Word spotting stands still on hundreds of faces at once; a few hundred steps on these get it moving.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from PIL import Image, ImageDraw

from arr_coc_lab.teaching.page import OpenPage
from arr_coc_lab.world.browser.chromium import Word
from arr_coc_lab.world.fonts import TRAIN_FONTS, font


def easy_page(rng: random.Random, words: Sequence[str], side: int = 512) -> OpenPage:
    """A square page of lines of random words, each in one face and size.

    Args:
        rng: source of every choice.
        words: to draw from.
        side: of the page in px.
    """
    image = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(image)
    printed: list[Word] = []
    top = 4
    while top < side - 40:
        size = rng.randint(13, 24)
        face = font(rng.choice(TRAIN_FONTS), size)
        left = float(rng.randint(2, 30))
        while True:
            text = rng.choice(words)
            text = text.capitalize() if rng.random() < 0.2 else text
            edges = tuple(left + face.getlength(text[:i]) for i in range(len(text) + 1))
            if edges[-1] > side - 4:
                break
            draw.text((left, top), text, fill="black", font=face)
            printed.append(Word(text, (left, top, edges[-1], top + 1.2 * size), float(size), edges))
            left = edges[-1] + face.getlength(" ") * rng.uniform(1, 2)
        top += round(size * rng.uniform(1.25, 1.8))
    return OpenPage(image, tuple(printed), ())
