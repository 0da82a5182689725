"""Word spotting: trains the guide's print and word encoders to match printed words and drawn things.

Every slot (a small rectangle of the page) is matched against all words of the batch and more (InfoNCE, van
den Oord et al. 2018, arXiv 1807.03748); each pair of slot and word is also classified alone (SigLIP, Zhai et
al. 2023, arXiv 2303.15343), so that a similarity means the same on every page; and a third loss reads the
characters of every slot.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.guide.guide import Guide
from arr_coc.guide.print_encoder import SLOT, luminance
from arr_coc.guide.question import ALPHABET, folded, normal
from arr_coc_lab.teaching.names import EVERY, name_words
from arr_coc_lab.teaching.page import OpenPage
from arr_coc_lab.teaching.wording import SHORT, slip
from arr_coc_lab.world.browser.chromium import Box, Word

SMALLEST, LARGEST = 8.0, 40.0  # font sizes in px of a crop's words
# Share of crops around a word with a digit, if a page has one: numbers differ by less than words do.
NUMBERS = 0.4
NATIVE = 1 / 3  # share of crops at their own scale
THINGS = (12.0, 80.0)  # sides in px of named things: the shortest and the longest


class CropThing(NamedTuple):
    """A drawn thing: the normal words that name it, and the slots in its middle, long [S, 2]."""

    words: tuple[str, ...]
    slots: Tensor


class Crop(NamedTuple):
    """A crop of a page, and what is printed and drawn on it.

    `pixels` float [3, size, size] in [0, 1]; `words` the distinct normal words; `slots` long [S, 3]: row,
    column and word index; `empty` long [E, 2]: slots without print or things; `letters` bool [len(ALPHABET),
    size/8, size/8]; `things` those of a size that can be recognised.
    """

    pixels: Tensor
    words: list[str]
    slots: Tensor
    empty: Tensor
    letters: Tensor
    things: tuple[CropThing, ...] = ()


def crop_page(page: OpenPage, size: int, rng: random.Random) -> Crop | None:
    """Return a random crop of `size` px (a multiple of 32); None if it holds fewer than three words."""
    if len(page.words) < 3:
        return None
    numbers = [word for word in page.words if any(letter.isdigit() for letter in word.text)]
    focus = rng.choice(numbers if numbers and rng.random() < NUMBERS else page.words)
    # Small print is rare on pages and hard to read, so sizes are drawn evenly by their logarithm.
    wanted = SMALLEST * (LARGEST / SMALLEST) ** (rng.random() ** 1.3)
    # A third as it is: print that was scaled is softer than the print of a screen.
    scale = 1.0 if rng.random() < NATIVE else min(2.0, max(0.4, wanted / focus.size))
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
    """Return where a window of `side` starts in an image of `length`, moved inside as far as it fits."""
    return max(0.0, min(wanted, length - side))


def _placed(word: Word, left: float, top: float, scale: float) -> Word:
    """Return a word in the px of a crop."""
    box = moved(word.box, (left, top), (scale, scale))
    return Word(word.text, box, word.size * scale, tuple((x - left) * scale for x in word.edges))


def moved(box: Box, corner: tuple[float, float], scale: tuple[float, float]) -> Box:
    """Return a box in px of a part of a page whose left upper corner is `corner`, scaled by `scale` in x and
    y.
    """
    (left, top), (across, down) = corner, scale
    x0, y0, x1, y1 = box
    return (x0 - left) * across, (y0 - top) * down, (x1 - left) * across, (y1 - top) * down


def _inside(word: Word, width: int, height: int) -> bool:
    """Return whether at least 3/4 of a word of readable size is in a crop."""
    x0, y0, x1, y1 = word.box
    share = (min(x1, width) - max(x0, 0)) / max(x1 - x0, 1e-6)
    return share > 0.75 and y0 >= -1 and y1 <= height + 1 and SMALLEST * 0.9 <= word.size <= LARGEST * 1.15


def _things(things: list[tuple[str, Box]], size: tuple[int, int]) -> tuple[CropThing, ...]:
    """Return the things that are completely in a crop of (width, height), if neither too small nor too
    large.
    """
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
        visible.append(CropThing(name_words(name), slots))
    return tuple(visible)


def _targets(
    words: list[Word], all_words: list[Word], things: list[Box], size: int
) -> tuple[list[str], Tensor, Tensor, Tensor]:
    """Return the distinct words, their slots, the empty slots and the characters of a crop."""
    high, wide = SLOT
    names: dict[str, int] = {}
    slots: list[tuple[int, int, int]] = []
    letters = np.zeros((len(ALPHABET), size // high, size // 8), bool)  # twice as fine as slots in x
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
                column = int((start + end) / 16)  # of the character's centre, in cells of 8 px
                if place >= 0 and 0 <= column < size // 8:
                    letters[place, rows[0] : rows[-1] + 1, column] = True
    free = torch.from_numpy(~busy).nonzero()
    if len(free) > 64:
        free = free[torch.linspace(0, len(free) - 1, 64).long()]
    return list(names), torch.tensor(slots, dtype=torch.long).view(-1, 3), free, torch.from_numpy(letters)


def _centres(low: float, high: float, step: int, count: int) -> list[int]:
    """Indices of cells of `step` px with centres in [low, high]; at least the one with the middle."""
    inside = [
        i
        for i in range(max(0, int(low // step)), min(count, int(high // step) + 1))
        if low <= (i + 0.5) * step <= high
    ]
    return inside or [min(count - 1, max(0, int((low + high) / 2 // step)))]


def _even(x0: float, x1: float, count: int) -> tuple[float, ...]:
    """Ends of a word's characters, all equally wide, if they were not measured."""
    return tuple(x0 + (x1 - x0) * i / count for i in range(count + 1))


def distort(pixels: Tensor, rng: random.Random) -> Tensor:
    """Change contrast, polarity, blur or noise of pixels [3, h, w] in [0, 1], as screens and cameras do."""
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


SLOTS = 700  # printed slots of a batch that are compared with words
MISSES = 320  # most near misses that compete in a batch
OTHER_THINGS = 24  # names of other things that compete in a batch with things
THING_SLOTS, MIDDLE = 160, 6  # slots of things of a batch that are compared with words, and of one thing
NAMED = 0.3  # weight of the loss of things beside that of print
SLIPS = 0.08  # share of a batch's longer words that are misspelt
DIGITS = "0123456789"


def near_misses(words: Sequence[str], rng: random.Random) -> list[str]:
    """Two misreadings of each normal word with digits: another digit, or two swapped.

    A single letter has two other letters; longer words without digits have none: a slip should cost little.
    """
    misses: list[str] = []
    for word in words:
        if len(word) == 1 and word.isascii() and word.isalpha():
            misses += rng.sample([letter for letter in ascii_lowercase if letter != word], 2)
        places = [place for place, letter in enumerate(word) if letter in DIGITS]
        for _ in range(2 if places else 0):
            place = rng.choice(places)
            follower = place + 1
            if follower in places and word[place] != word[follower] and rng.random() < 0.3:
                other = word[follower] + word[place]
                misses.append(word[:place] + other + word[follower + 1 :])
            else:
                digit = rng.choice([digit for digit in DIGITS if digit != word[place]])
                misses.append(word[:place] + digit + word[place + 1 :])
    return list(dict.fromkeys(misses))


class Targets(NamedTuple):
    """What the slots of a batch are compared with."""

    words: list[str]  # W normal words that compete
    printed: Tensor  # long [S, 4]: crop, row, column and word of printed slots
    things: Tensor  # long [T, 4]: the same of slots of things, each with one of the words that name it
    other_names: Tensor  # bool [T, W]: other names of each thing, left out of its competition


def make_targets(crops: Sequence[Crop], others: Sequence[str], rng: random.Random) -> Targets:
    """Return the targets of a batch of crops; `others` are normal words that compete beside those of the
    batch.
    """
    numbers: dict[str, int] = {}
    # A word that competes by itself must not stand against its own print.
    competing = {*others, *(word for crop in crops for thing in crop.things for word in thing.words)}
    every = dict.fromkeys(word for crop in crops for word in crop.words)
    typed = {word: word if word in competing else _typed(word, rng) for word in every}
    printed: list[tuple[int, int, int, int]] = []
    things: list[tuple[int, int, int, int]] = []
    names: list[tuple[str, ...]] = []
    for i, crop in enumerate(crops):
        own = [numbers.setdefault(typed[word], len(numbers)) for word in crop.words]
        printed += [(i, row, column, own[word]) for row, column, word in crop.slots.tolist()]
    misses = near_misses(list(numbers), rng)
    for i, crop in enumerate(crops):
        for thing in crop.things:
            name = numbers.setdefault(rng.choice(thing.words), len(numbers))
            slots = thing.slots.tolist()
            slots = rng.sample(slots, min(MIDDLE, len(slots)))
            things += [(i, row, column, name) for row, column in slots]
            names += [thing.words] * len(slots)
    rivals = [*others, *rng.sample(misses, min(MISSES, len(misses)))]
    rivals += [rng.choice(name_words(name)) for name in rng.sample(EVERY, OTHER_THINGS)] if things else []
    for word in rivals:
        numbers.setdefault(word, len(numbers))
    if len(printed) > SLOTS:
        printed = rng.sample(printed, SLOTS)
    kept = rng.sample(range(len(things)), min(THING_SLOTS, len(things)))
    other_names = torch.zeros(len(kept), len(numbers), dtype=torch.bool)
    for row, place in enumerate(kept):
        also = [numbers[word] for word in names[place] if word in numbers]
        other_names[row, also] = True
        other_names[row, things[place][3]] = False
    slots = (
        torch.tensor(each, dtype=torch.long).view(-1, 4) for each in (printed, [things[k] for k in kept])
    )
    return Targets(list(numbers), *slots, other_names)


def _typed(word: str, rng: random.Random) -> str:
    """Return a printed word as typed by a user: long words of letters alone are sometimes misspelt."""
    slips = len(word) > SHORT and word.isalpha() and rng.random() < SLIPS
    return slip(word, rng) if slips else word


def spotting_loss(
    guide: Guide, crops: Sequence[Crop], others: Sequence[str], rng: random.Random
) -> tuple[Tensor, dict[str, float]]:
    """Loss of a batch of crops of one size, and its parts: losses, and shares of slots whose word is nearest.

    `others` are normal words that compete beside those of the batch.
    """
    device = guide.threshold.device
    words, *targets = make_targets(crops, others, rng)
    printed, things, other_names = (target.to(device) for target in targets)
    pixels = torch.stack([crop.pixels for crop in crops]).to(device)
    sight = guide.eyes(luminance(pixels), characters=True)
    # Float32: in bfloat16 oneDNN compiles kernels for every number of words and slots, a tenth of the step.
    with torch.autocast(device.type, enabled=False):
        nouns = guide.words(words)

    def cosines(slots: Tensor) -> Tensor:
        with torch.autocast(device.type, enabled=False):
            return sight.print[slots[:, 0], :, slots[:, 1], slots[:, 2]].float() @ nouns.T

    cosine, word = cosines(printed), printed[:, 3]  # (S, W)
    own = F.one_hot(word, len(words)).bool()
    match = F.cross_entropy(cosine * guide.sharpness.exp(), word)
    empty = torch.cat([F.pad(crop.empty, (1, 0), value=i) for i, crop in enumerate(crops)]).to(device)
    alone = _alone(guide.likeness(cosine), own)
    alone = alone - F.logsigmoid(-guide.likeness(cosines(empty))).sum(1).mean() if len(empty) else alone
    letters = torch.stack([crop.letters for crop in crops]).to(device).float()
    spell = (
        F.binary_cross_entropy_with_logits(
            sight.characters.float(), letters, pos_weight=letters.new_tensor(4.0), reduction="none"
        )
        .sum(1)
        .mean()
    )
    loss = match + 0.1 * alone + 0.5 * spell
    right = (cosine.argmax(1) == word).float().mean()
    parts = {"match": match.item(), "alone": alone.item(), "spell": spell.item(), "right": right.item()}
    if len(things):
        cosine, name = cosines(things).masked_fill(other_names, -1.0), things[:, 3]
        named = F.cross_entropy(cosine * guide.sharpness.exp(), name)
        # What a similarity means is learned from print: a thing of four names cannot be near to each of them.
        likeness = guide.scale.exp().detach() * (cosine - guide.threshold.detach())
        loss = loss + NAMED * (named + 0.1 * _alone(likeness, F.one_hot(name, len(words)).bool()))
        parts |= {"named": named.item(), "named_right": (cosine.argmax(1) == name).float().mean().item()}
    return loss, parts


def _alone(logits: Tensor, own: Tensor) -> Tensor:
    """Binary loss of each pair of slot and word, [S, W]: mean over slots, sum over other words."""
    # -30 makes a slot's own word count nothing among the others
    return -F.logsigmoid(logits[own]).mean() - F.logsigmoid(-logits.masked_fill(own, -30.0)).sum(1).mean()
