"""Word spotting: the eyes learn to tell which word is printed on a slot.

Every slot of a printed word is matched against all words of the batch and more (InfoNCE, van den Oord et
al. 2018); each pair of slot and word is also told apart alone (Zhai et al. 2023, SigLIP), empty slots
among them, so that a similarity means the same on every page; and the characters of every slot are named.
Among the others are numbers that are nearly those of the batch (`near_misses`): a wrong letter may cost
little, but 10:33 is not 10:53.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from string import ascii_lowercase

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.core.guide.eyes import luminance
from arr_coc.core.guide.guide import Guide
from arr_coc.training.guide.crops import Crop

SLOTS = 700
"""Printed slots of a batch that are compared with words."""
MISSES = 320
"""The most near misses that compete in a batch."""
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


def spotting_loss(
    guide: Guide, crops: Sequence[Crop], others: Sequence[str], rng: random.Random
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a batch of crops, and its parts with the share of slots whose own word is the nearest.

    Args:
        guide: its eyes and words learn.
        crops: of one size.
        others: normal words that compete beside those of the batch.
        rng: chooses among the slots.
    """
    device = guide.threshold.device
    names: dict[str, int] = {}
    places: list[tuple[int, int, int, int]] = []
    for i, crop in enumerate(crops):
        numbers = [names.setdefault(word, len(names)) for word in crop.words]
        places += [(i, row, column, numbers[word]) for row, column, word in crop.slots.tolist()]
    if len(places) > SLOTS:
        places = rng.sample(places, SLOTS)
    misses = near_misses(list(names), rng)
    rivals = [*others, *rng.sample(misses, min(MISSES, len(misses)))]
    words = [*names, *(word for word in dict.fromkeys(rivals) if word not in names)]
    pixels = torch.stack([crop.pixels for crop in crops]).to(device)
    sight = guide.eyes(luminance(pixels), characters=True)
    b, row, column, word = torch.tensor(places, device=device).unbind(1)
    vectors = sight.print[b, :, row, column]
    nouns = guide.words(words)
    cosine = vectors.float() @ nouns.T  # (S, W)
    match = F.cross_entropy(cosine * guide.sharpness.exp(), word)
    empty = torch.cat([F.pad(crop.empty, (1, 0), value=i) for i, crop in enumerate(crops)]).to(device)
    blank = sight.print[empty[:, 0], :, empty[:, 1], empty[:, 2]].float() @ nouns.T
    own = F.one_hot(word, len(words)).bool()
    logits, blanks = guide.likeness(cosine), guide.likeness(blank)
    alone = -F.logsigmoid(logits[own]).mean() - F.logsigmoid(-logits.masked_fill(own, -30.0)).sum(1).mean()
    alone = alone - F.logsigmoid(-blanks).sum(1).mean() if len(empty) else alone
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
    return loss, parts
