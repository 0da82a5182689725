"""Word spotting: the eyes learn to tell which word is printed on a slot.

Every slot of a printed word is matched against all words of the batch and more (InfoNCE, van den Oord et
al. 2018); each pair of slot and word is also told apart alone (Zhai et al. 2023, SigLIP), empty slots
among them, so that a similarity means the same on every page; and the characters of every slot are named.
Among the others are numbers that are nearly those of the batch (`near_misses`): 10:33 is not 10:53. But a
wrong letter must cost little, so some words of a batch are misspelt while what is printed is not.

What a page shows is read as print is: the slots of an icon agree with the words of its names.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from string import ascii_lowercase
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.guide.guide import Guide
from arr_coc.guide.print_encoder import luminance
from arr_coc_lab.teaching.crops import Crop
from arr_coc_lab.teaching.names import EVERY, name_words
from arr_coc_lab.teaching.wording import SHORT, slip

SLOTS = 700
"""Printed slots of a batch that are compared with words."""
MISSES = 320
"""The most near misses that compete in a batch."""
OTHERS = 24
"""Words of things beside those of a batch that compete where it shows some."""
THING_SLOTS, MIDDLE = 160, 6
"""Slots of things of a batch that are compared with words, and of one thing."""
NAMED = 0.3
"""Weight of what is shown beside what is printed."""
SLIPS = 0.08
"""Share of the longer words of a batch that are misspelt."""
DIGITS = "0123456789"


def near_misses(words: Sequence[str], rng: random.Random) -> list[str]:
    """Normal words that differ in little from those with digits, two for each: in one digit, or in the order
    of two. For a single letter, two others.

    Args:
        words: normal words; those of letters alone have none, for there a slip must cost little.
        rng: source of every choice.
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
    """What the slots of a batch are compared with.

    Attributes:
        words: normal words that compete.
        printed: long [S, 4]: crop, row, column and word of slots with print.
        things: long [T, 4]: the same of slots of things, each with one of the words that name it.
        other_names: bool [T, words]: what else names each of these, which competes with none of them.
    """

    words: list[str]
    printed: Tensor
    things: Tensor
    other_names: Tensor


def make_targets(crops: Sequence[Crop], others: Sequence[str], rng: random.Random) -> Targets:
    """What a batch is taught, and which words compete in it.

    Args:
        crops: of one size.
        others: normal words that compete beside those of the batch.
        rng: chooses among the slots, the names of things and the near misses.
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
    rivals += [rng.choice(name_words(name)) for name in rng.sample(EVERY, OTHERS)] if things else []
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
    """A printed word as somebody may type it; none but long words of letters alone is ever misspelt."""
    slips = len(word) > SHORT and word.isalpha() and rng.random() < SLIPS
    return slip(word, rng) if slips else word


def spotting_loss(
    guide: Guide, crops: Sequence[Crop], others: Sequence[str], rng: random.Random
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a batch of crops, and its parts with the share of slots whose own word is the nearest:
    of slots with print, and of those of things.

    Args:
        guide: its eyes and words learn.
        crops: of one size.
        others: normal words that compete beside those of the batch.
        rng: chooses among the slots.
    """
    device = guide.threshold.device
    words, *targets = make_targets(crops, others, rng)
    printed, things, other_names = (target.to(device) for target in targets)
    pixels = torch.stack([crop.pixels for crop in crops]).to(device)
    sight = guide.eyes(luminance(pixels), characters=True)
    # In bfloat16 a CPU would make kernels for every number of words and slots: a tenth of the step.
    with torch.autocast(device.type, enabled=False):
        nouns = guide.words(words)

    def cosines(slots: Tensor) -> Tensor:
        """Of slots, each a crop, a row and a column, with all words."""
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
    """The loss of each pair of slot and word told apart by itself, [S, W]."""
    return -F.logsigmoid(logits[own]).mean() - F.logsigmoid(-logits.masked_fill(own, -30.0)).sum(1).mean()
