"""Windows of cached browser-rendered pages, scaled so that their print can be read."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc_lab.teaching.page import OpenPage
from arr_coc_lab.teaching.spotting import distort
from arr_coc_lab.world.browser.chromium import Word
from making.bundled import CELL
from making.printed import LEAST, MOST

SMALLEST, LARGEST = 19.0, 42.0
"""Font sizes in px to which the word that a window is chosen for is scaled."""
FILTERS = (Image.Resampling.BICUBIC, Image.Resampling.BILINEAR, Image.Resampling.LANCZOS)


class Window(NamedTuple):
    """Pixels [3, h, w] in [0, 1] and the words in px of the window; those outside of it are among them."""

    pixels: Tensor
    words: list[Word]


def windows(
    page: OpenPage, cells: tuple[int, int], count: int, rng: random.Random, tries: int = 4, plain: float = 0.5
) -> Iterator[Window]:
    """Some windows of a page, each the fullest of a few.

    Args:
        page: with words.
        cells: height and width of a window in cells.
        count: how many.
        rng: source of every choice.
        tries: candidates for each.
        plain: share of windows that are as the page is, without another contrast, blur or noise.
    """
    height, width = cells[0] * CELL, cells[1] * CELL
    for _ in range(count):
        options = [_frame(page, (width, height), rng) for _ in range(tries)]
        left, top, scale = max(options, key=lambda f: _print(page.words, f, width, height))
        yield cut(page, (left, top, scale), (width, height), None if rng.random() < plain else rng, rng)


def cut(
    page: OpenPage,
    frame: tuple[float, float, float],
    size: tuple[int, int],
    changes: random.Random | None = None,
    rng: random.Random | None = None,
) -> Window:
    """The window of a page at (left, top, scale), `size` px wide and high; padded where the page ends.

    Args:
        page: that it shows.
        frame: left and top in px of the page, and px of the window per px of the page.
        size: width and height in px.
        changes: source of another contrast, polarity, blur or noise; None: as it is.
        rng: chooses the resampling; None: bicubic.
    """
    left, top, scale = frame
    right = min(page.image.width, left + size[0] / scale)
    bottom = min(page.image.height, top + size[1] / scale)
    wide = max(1, min(size[0], round((right - left) * scale)))
    high = max(1, min(size[1], round((bottom - top) * scale)))
    resample = rng.choice(FILTERS) if rng else Image.Resampling.BICUBIC
    part = page.image.resize((wide, high), resample, box=(left, top, right, bottom))
    pixels = torch.from_numpy(np.asarray(part).copy()).permute(2, 0, 1).float() / 255
    if (wide, high) != size:
        pixels = F.pad(pixels[None], (0, size[0] - wide, 0, size[1] - high), mode="replicate")[0]
    words = [placed(word, left, top, scale) for word in page.words]
    return Window(distort(pixels, changes) if changes else pixels, words)


def placed(word: Word, left: float, top: float, scale: float) -> Word:
    """A word in px of a window."""
    x0, y0, x1, y1 = word.box
    box = ((x0 - left) * scale, (y0 - top) * scale, (x1 - left) * scale, (y1 - top) * scale)
    return Word(word.text, box, word.size * scale, tuple((x - left) * scale for x in word.edges))


def _frame(page: OpenPage, size: tuple[int, int], rng: random.Random) -> tuple[float, float, float]:
    """Left, top and scale of a window round a random word."""
    focus = rng.choice(page.words)
    wanted = SMALLEST * (LARGEST / SMALLEST) ** rng.random()
    scale = min(3.0, max(0.4, wanted / focus.size))
    across, down = size[0] / scale, size[1] / scale
    x = focus.box[0] - rng.uniform(0.02, 0.5) * across
    y = (focus.box[1] + focus.box[3]) / 2 - rng.uniform(0.1, 0.9) * down
    return max(0.0, min(x, page.image.width - across)), max(0.0, min(y, page.image.height - down)), scale


def _print(words: Sequence[Word], frame: tuple[float, float, float], width: int, height: int) -> int:
    """How many characters a window shows in sizes that can be read."""
    left, top, scale = frame
    right, bottom = left + width / scale, top + height / scale
    return sum(
        len(w.text)
        for w in words
        if LEAST <= w.size * scale <= MOST
        and left <= w.box[0]
        and w.box[2] <= right
        and top <= w.box[1]
        and w.box[3] <= bottom
    )
