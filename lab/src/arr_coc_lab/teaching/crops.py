"""Crops of rendered pages for word spotting: pixels, the word and the characters of every slot, and the
things that are shown.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.guide.print_encoder import SLOT
from arr_coc.guide.question import ALPHABET, folded, normal
from arr_coc_lab.teaching.names import name_words
from arr_coc_lab.teaching.page import OpenPage
from arr_coc_lab.world.browser.chromium import Box, Word

SMALLEST, LARGEST = 8.0, 40.0
"""Font sizes in px between which a crop's words are read; larger ones are read in the picture at half its
size."""
NUMBERS = 0.4
"""Share of crops that are laid around a word with a digit in it, where a page has one: numbers are told apart
by less than words are."""
THINGS = (12.0, 80.0)
"""Sides in px of things that are named: of the shorter and the longer one."""


class Thing(NamedTuple):
    """A thing that is shown: the normal words that name it, and the slots in its middle, long [S, 2]."""

    words: tuple[str, ...]
    slots: Tensor


class Crop(NamedTuple):
    """A crop and what is printed and shown on it.

    `pixels` float [3, size, size] in [0, 1]; `words` the distinct normal words; `slots` long [S, 3]: the
    row and column of a slot and the index of its word; `empty` long [E, 2]: slots without print or things;
    `letters` bool [len(ALPHABET), size/8, size/8]; `things` those of a size that can be told.
    """

    pixels: Tensor
    words: list[str]
    slots: Tensor
    empty: Tensor
    letters: Tensor
    things: tuple[Thing, ...] = ()


def crop_page(page: OpenPage, size: int, rng: random.Random) -> Crop | None:
    """A random crop of a page at a random scale, or None where it holds fewer than three words.

    Args:
        page: with words and the ends of their characters.
        size: of the crop in px, a multiple of 32.
        rng: source of every choice.
    """
    if len(page.words) < 3:
        return None
    numbers = [word for word in page.words if any(letter.isdigit() for letter in word.text)]
    focus = rng.choice(numbers if numbers and rng.random() < NUMBERS else page.words)
    # Small print is rare on pages and hard to read, so sizes are drawn evenly by their logarithm.
    wanted = SMALLEST * (LARGEST / SMALLEST) ** (rng.random() ** 1.3)
    scale = min(2.0, max(0.4, wanted / focus.size))
    image = page.image
    side = size / scale
    left = _start((focus.box[0] + focus.box[2]) / 2 - side * rng.random(), side, image.width)
    top = _start((focus.box[1] + focus.box[3]) / 2 - side * rng.random(), side, image.height)
    resample = rng.choice((Image.Resampling.BICUBIC, Image.Resampling.BILINEAR, Image.Resampling.LANCZOS))
    window = (left, top, min(left + side, image.width), min(top + side, image.height))
    width, height = (round((window[2] - window[0]) * scale), round((window[3] - window[1]) * scale))
    part = image.resize((max(1, min(size, width)), max(1, min(size, height))), resample, box=window)
    pixels = torch.from_numpy(np.asarray(part).copy()).permute(2, 0, 1).float() / 255
    pad = (0, size - pixels.shape[2], 0, size - pixels.shape[1])
    pixels = F.pad(pixels[None], pad, mode="replicate")[0] if max(pad) else pixels
    placed = [_placed(word, left, top, scale) for word in page.words]
    inside = [w for w in placed if _inside(w, part.width, part.height)]
    if len(inside) < 3:
        return None
    things = [(name, moved(box, (left, top), (scale, scale))) for name, box in page.things]
    targets = _targets(inside, placed, [box for _, box in things], size)
    return Crop(distort(pixels, rng), *targets, _things(things, (part.width, part.height)))


def _start(wanted: float, side: float, length: float) -> float:
    """Where a window of `side` begins in a picture of `length` so that it lies within it as far as it can."""
    return max(0.0, min(wanted, length - side))


def _placed(word: Word, left: float, top: float, scale: float) -> Word:
    """A word as it stands in a crop."""
    box = moved(word.box, (left, top), (scale, scale))
    return Word(word.text, box, word.size * scale, tuple((x - left) * scale for x in word.edges))


def moved(box: Box, corner: tuple[float, float], scale: tuple[float, float]) -> Box:
    """A box in the px of a part of a page, whose left upper corner lies at `corner`; scaled in x and y."""
    (left, top), (across, down) = corner, scale
    x0, y0, x1, y1 = box
    return (x0 - left) * across, (y0 - top) * down, (x1 - left) * across, (y1 - top) * down


def _inside(word: Word, width: int, height: int) -> bool:
    """Whether a word of readable size lies in a crop for the most part."""
    x0, y0, x1, y1 = word.box
    share = (min(x1, width) - max(x0, 0)) / max(x1 - x0, 1e-6)
    return share > 0.75 and y0 >= -1 and y1 <= height + 1 and SMALLEST * 0.9 <= word.size <= LARGEST * 1.15


def _things(things: list[tuple[str, Box]], size: tuple[int, int]) -> tuple[Thing, ...]:
    """The things that lie whole in a crop of (width, height), if neither too small nor too large."""
    visible = []
    for name, (x0, y0, x1, y1) in things:
        shorter, longer = sorted((x1 - x0, y1 - y0))
        if x0 < 0 or y0 < 0 or x1 > size[0] or y1 > size[1] or shorter < THINGS[0] or longer > THINGS[1]:
            continue
        (rows, columns) = (
            _centres(low + (high - low) / 4, high - (high - low) / 4, step, int(-(-high // step)))
            for low, high, step in ((y0, y1, SLOT[0]), (x0, x1, SLOT[1]))
        )
        slots = torch.cartesian_prod(torch.tensor(rows), torch.tensor(columns))
        visible.append(Thing(name_words(name), slots))
    return tuple(visible)


def _targets(
    words: list[Word], all_words: list[Word], things: list[Box], size: int
) -> tuple[list[str], Tensor, Tensor, Tensor]:
    """The distinct words, their slots, the empty slots and the characters of a crop."""
    high, wide = SLOT
    names: dict[str, int] = {}
    slots: list[tuple[int, int, int]] = []
    letters = np.zeros((len(ALPHABET), size // high, size // 8), bool)
    busy = np.zeros((size // high, size // wide), bool)
    for x0, y0, x1, y1 in (*(word.box for word in all_words), *things):
        rows = slice(max(0, int(y0 // high)), max(0, int(-(-y1 // high))))
        busy[rows, max(0, int(x0 // wide)) : max(0, int(-(-x1 // wide)))] = True
    for word in words:
        name = normal(word.text)
        if not name:
            continue
        number = names.setdefault(name, len(names))
        x0, y0, x1, y1 = word.box
        middle, reach = (y0 + y1) / 2, 0.32 * word.size
        rows = _centres(middle - reach, middle + reach, high, size // high)
        columns = _centres(max(0.0, x0), min(size, x1), wide, size // wide)
        slots += [(row, column, number) for row in rows for column in columns]
        plain = folded(word.text)
        if plain:
            edges = word.edges if len(word.edges) == len(plain) + 1 else _even(x0, x1, len(plain))
            for letter, start, end in zip(plain, edges, edges[1:], strict=False):
                place = ALPHABET.find(letter)
                column = int((start + end) / 16)
                if place >= 0 and 0 <= column < size // 8:
                    letters[place, rows[0] : rows[-1] + 1, column] = True
    free = torch.from_numpy(~busy).nonzero()
    if len(free) > 64:
        free = free[torch.linspace(0, len(free) - 1, 64).long()]
    return list(names), torch.tensor(slots, dtype=torch.long).view(-1, 3), free, torch.from_numpy(letters)


def _centres(low: float, high: float, step: int, count: int) -> list[int]:
    """Cells of `step` px whose centres lie in an interval; at least the one its middle lies in."""
    inside = [
        i
        for i in range(max(0, int(low // step)), min(count, int(high // step) + 1))
        if low <= (i + 0.5) * step <= high
    ]
    return inside or [min(count - 1, max(0, int((low + high) / 2 // step)))]


def _even(x0: float, x1: float, count: int) -> tuple[float, ...]:
    """The ends of a word's characters where nobody measured them: all equally wide."""
    return tuple(x0 + (x1 - x0) * i / count for i in range(count + 1))


def distort(pixels: Tensor, rng: random.Random) -> Tensor:
    """Pixels [3, h, w] in [0, 1] with another contrast, polarity, blur or noise, as screens and cameras
    make them.
    """
    if rng.random() < 0.25:
        pixels = 1 - pixels
    if rng.random() < 0.5:
        low, high = sorted((rng.uniform(0, 0.6), rng.uniform(0.4, 1)))
        if high - low > 0.2:
            pixels = low + (high - low) * pixels
    if rng.random() < 0.15:
        small = F.interpolate(
            pixels[None], scale_factor=rng.uniform(0.6, 0.95), mode="bilinear", antialias=True
        )
        pixels = F.interpolate(small, pixels.shape[-2:], mode="bilinear")[0]
    if rng.random() < 0.3:
        generator = torch.Generator().manual_seed(rng.getrandbits(31))
        pixels = pixels + rng.uniform(0, 0.06) * torch.randn(pixels.shape, generator=generator)
    return pixels.clamp(0, 1)
