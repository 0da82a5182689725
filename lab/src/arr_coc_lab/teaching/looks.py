"""What things look like: the head learns which places show what a name says.

make_looks(things, (width, height), rng)      a lesson from what a window shows
looks_loss(guide, page, lesson)

Where a thing is its name competes with the others, and says yes; elsewhere none of them does. A thing has
several names (`names`), of which each lesson says one, in one of some questions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.guide.guide import Guide, GuidePage
from arr_coc.guide.print_encoder import PLACE
from arr_coc.guide.question import split_words
from arr_coc_lab.teaching.names import EVERY, names_of
from arr_coc_lab.world.browser.chromium import Box

MOST, OTHERS = 24, 8
"""Names of a lesson: of what the window shows, and of what it doesn't."""
QUESTIONS = (
    "what colour is the {}", "where is the {}", "which picture shows a {}", "what is the {} icon called",
    "which button shows the {}", "{}", "how many {} are there", "find the {} icon", "what is next to the {}",
)  # fmt: skip
NONE, PART = -1, -2
"""Places that show nothing, and those that show a part of something or what the lesson has no name for."""


class Named(NamedTuple):
    """A name in the words of a question, and which of them it is: from the first to before the last."""

    words: tuple[str, ...]
    first: int
    last: int


class Looks(NamedTuple):
    """A lesson: names, and the number of the one that each place shows, long [H, W], or NONE or PART."""

    names: tuple[Named, ...]
    places: Tensor


def make_looks(things: Sequence[tuple[str, Box]], size: tuple[int, int], rng: random.Random) -> Looks | None:
    """What can be learned from the things of a window, each with its box in px; None without any inside.

    Args:
        things: by name.
        size: (width, height) of the window in px.
        rng: source of every choice.
    """
    width, height = size
    inside = [
        (name, box)
        for name, box in things
        if 0 <= (box[0] + box[2]) / 2 < width and 0 <= (box[1] + box[3]) / 2 < height
    ]
    if not inside:
        return None
    names = sorted({name for name, _ in inside})
    chosen = rng.sample(names, min(MOST, len(names)))
    others = [name for name in EVERY if name not in names]
    numbers = {name: number for number, name in enumerate(chosen)}
    places = torch.full((height // PLACE[0], width // PLACE[1]), NONE)
    for partly in (True, False):
        for name, box in inside:
            rows, columns = (_covered(box, axis, partly, places.shape[axis]) for axis in (0, 1))
            places[rows, columns] = PART if partly else numbers.get(name, PART)
    every = [*chosen, *rng.sample(others, min(OTHERS, len(others)))]
    return Looks(tuple(_named(name, rng) for name in every), places)


def _covered(box: Box, axis: int, partly: bool, count: int) -> slice:
    """The places along an axis that a box touches, or those with their middle in it, one at least."""
    low, high = (edge / PLACE[axis] for edge in (box[1 - axis], box[3 - axis]))
    middle = int((low + high) / 2)
    first, last = (int(low), int(high)) if partly else (round(low), round(high) - 1)
    return slice(max(0, min(first, middle)), min(count - 1, max(last, middle)) + 1)


def _named(name: str, rng: random.Random) -> Named:
    """One of the names of a thing in one of the questions."""
    before, after = (split_words(part) for part in rng.choice(QUESTIONS).split("{}"))
    own = split_words(rng.choice(names_of(name)))
    return Named((*before, *own, *after), len(before), len(before) + len(own))


def looks_loss(guide: Guide, page: GuidePage, lesson: Looks) -> Tensor:
    """The loss of a lesson about a window."""
    readings = guide.read([name.words for name in lesson.names])
    looks = [
        guide.head.appearance(page.features, reading)[first:last].float().amax(0)
        for reading, (_, first, last) in zip(readings, lesson.names, strict=True)
    ]
    logits, places = torch.stack(looks), lesson.places.to(page.features.device)
    here = places >= 0
    elsewhere = F.softplus(logits[:, places == NONE]).mean()
    if not bool(here.any()):
        return elsewhere
    mine, right = logits[:, here].T, places[here]
    yes = F.softplus(-mine.gather(1, right[:, None])).mean()
    return F.cross_entropy(mine, right) + yes + elsewhere
