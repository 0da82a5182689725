"""Meanings of words as vectors learned from dictionaries, and which words have to do with one another.

    related("salary")           (("wages", 0.83), ("remuneration", 0.82), ("payroll", 0.75), ...)
    inflections("sharing")      ("share", "shared", "shares")
    meaning("salary")           [WIDTH], of unit length; zeros for a word without a row

Some 21,000 common English words have a row; `making/meanings.py` learned them. The lexicon says which words
are printed for one another; this table, which words have to do with one another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from arr_coc.guide.eyes import SLOT, block_max
from arr_coc.guide.lexicon import stem
from arr_coc.guide.words import DIM, WordEncoder

FILE = "meanings.safetensors"
WIDTH = 64
"""Of the vectors."""
MOST = 16
"""The most words that `related` gives."""
ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
"""A number that counts places, in figures."""
LEAST = 0.5
"""The least cosine with a word that makes another related to it: one in a thousand words, or so."""


class Meanings(NamedTuple):
    """The table: words in the order of their rows, the most frequent first, rows by word and by stem, vectors
    [N, WIDTH], and the rows of the words that the glossary reads.
    """

    words: tuple[str, ...]
    rows: dict[str, int]
    by_stem: dict[str, list[int]]
    vectors: Tensor
    glossary: tuple[int, ...]

    def row(self, word: str) -> int | None:
        """The row of a normal word, or of the most frequent word of its stem."""
        return self.rows.get(word, next(iter(self.by_stem.get(stem(word), ())), None))


@lru_cache(maxsize=1)
def meanings() -> Meanings:
    """The table; read at the first call."""
    with safe_open(Path(__file__).with_name(FILE), framework="pt") as file:
        words = tuple(file.get_tensor("words").numpy().tobytes().decode().split("\n"))
        vectors = file.get_tensor("vectors").float()
        glossary = tuple(file.get_tensor("glossary").tolist())
    by_stem: dict[str, list[int]] = {}
    for row, word in enumerate(words):
        by_stem.setdefault(stem(word), []).append(row)
    rows = {word: row for row, word in enumerate(words)}
    return Meanings(
        words, rows, by_stem, vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-9), glossary
    )


def glossary_words() -> tuple[str, ...]:
    """The common words that print is compared with, the most frequent in English first."""
    table = meanings()
    return tuple(table.words[row] for row in table.glossary)


def meaning(word: str) -> Tensor:
    """The vector of a normal word, [WIDTH] on the CPU."""
    table = meanings()
    row = table.row(word)
    return torch.zeros(WIDTH) if row is None else table.vectors[row]


@lru_cache(maxsize=4096)
def related(word: str, most: int = MOST, least: float = LEAST) -> tuple[tuple[str, float], ...]:
    """Words that have to do with a normal word and their cosines, nearest first; none of its own stem."""
    table = meanings()
    row = table.row(word)
    if row is None:
        return ()
    cosines, rows = (table.vectors @ table.vectors[row]).topk(min(4 * most, len(table.words)))
    nearest, taken = [], {stem(word), stem(table.words[row])}
    for other, cosine in zip(rows.tolist(), cosines.tolist(), strict=True):
        key = stem(table.words[other])
        if cosine >= least and key not in taken:
            taken.add(key)
            nearest.append((table.words[other], min(1.0, cosine)))
    return tuple(nearest[:most])


@lru_cache(maxsize=4096)
def inflections(word: str, most: int = 4) -> tuple[str, ...]:
    """Other forms of a normal word, the most frequent first: "share" of "sharing".

    What is asked for in the plural is often printed in the singular, and the eyes tell the two apart. The
    "30th" is printed as 30 in a calendar.
    """
    if ordinal := ORDINAL.fullmatch(word):
        return (ordinal[1],)
    table, key = meanings(), stem(word)
    if len(key) < 3 or word == "news":
        return ()
    return tuple(table.words[row] for row in table.by_stem.get(key, ()) if table.words[row] != word)[:most]


# The glossary: what is printed at each place means, read off the common words that it resembles.
#
#     Glossary()(print, light, likeness)      [WIDTH, h/16, w/32]
#
# A slot's vector of print is compared with those of some thousand common words, and their meanings
# (`meanings`)
# are mixed by how well each agrees. So "Remuneration" on a page lies near "pay" in a question though no list
# names the two together. A place where no word of the glossary stands, such as a number or a name, means
# nothing, and the vector there is short.

SHARPNESS = 60.0
"""What cosines are multiplied by where the words of the glossary compete for a slot."""
INK = 0.06
"""The least difference of luminance within a slot that print may stand in."""
FAINT = 0.02
"""How sure a word has to be to stand in a slot for the slot to mean anything."""
LEGIBLE, LONG = 0.85, 5
"""How sure a word has to be to count as read, and its least letters: strokes look like short words."""
CHUNK = 256
"""Slots that are read at once: their cosines with all words stay in the processor's cache, and it has its
kernels for this number ready, which take longer to make than to run."""


class Glossary(nn.Module):
    """Common words with their vectors and meanings.

    Attributes:
        words: in the order of the rows.
        vectors: [V, DIM] of `WordEncoder`; `learn` brings them up to date.
        meanings: [V, WIDTH].
    """

    vectors: Tensor
    meanings: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.words = glossary_words()
        self.register_buffer("vectors", torch.zeros(len(self.words), DIM))
        self.register_buffer("meanings", torch.stack([meaning(w) for w in self.words]), persistent=False)

    @torch.no_grad()
    def learn(self, words: WordEncoder) -> None:
        """Take the vectors that the words have now."""
        self.vectors.copy_(words(self.words))

    @torch.no_grad()
    def forward(
        self, prints: Sequence[Tensor], light: Tensor, likeness: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, int]:
        """What every place of a picture means, and how many words are read there.

        Args:
            prints: vectors of print of the picture, and of it at half and at a quarter of its size, each
                [DIM, h, w] of slots.
            light: luminance [1, 1, h, w] of the picture.
            likeness: the logit that a slot shows a word, from the cosine of their vectors.

        Returns:
            [WIDTH, h/16, w/32], vectors as long as a word is sure to stand there, at most 1; and the number
            of different words of LONG letters and more that stand somewhere with LEGIBLE certainty.
        """
        extremes = block_max(light, SLOT), block_max(-light, SLOT)
        masks, slots = [], []
        for scale, each in enumerate(prints):
            ink = _ink(extremes, scale, each.shape[-2:])
            if scale == 0:
                each, ink = _darker_rows(each, ink)
            masks.append(ink > INK)
            slots.append(each[:, masks[-1]].T)
        rows, legible = self._read(torch.cat(slots), likeness)
        parts = rows.split([len(each) for each in slots])
        height, width = light.shape[-2] // 16, light.shape[-1] // 32
        total = light.new_zeros(WIDTH + 1, height, width, dtype=torch.float32)
        for scale, (mask, part) in enumerate(zip(masks, parts, strict=True)):
            meant = total.new_zeros(WIDTH + 1, *mask.shape)
            meant[:, mask] = part.T
            if scale == 0:
                meant = meant[..., ::2] + meant[..., 1::2]
            elif scale == 2:
                meant = meant.repeat_interleave(2, -2).repeat_interleave(2, -1)
            total += meant[:, :height, :width]
        return total[:-1] / total[-1].clamp_min(1), sum(len(self.words[i]) >= LONG for i in legible)

    def _read(self, prints: Tensor, likeness: Callable[[Tensor], Tensor]) -> tuple[Tensor, set[int]]:
        """Meanings of slots and, last, how sure a word is to stand in each, [N, DIM] -> [N, WIDTH + 1]; and
        the numbers of the words that are legible in one.
        """
        dtype, count = self.vectors.dtype, len(prints)
        read = F.pad((SHARPNESS * prints).to(dtype), (0, 0, 0, -count % CHUNK))
        meanings = F.pad(self.meanings, (0, 1), value=1.0).to(dtype)  # the last column adds up the weights
        bias = read.new_full((len(self.vectors),), -SHARPNESS)
        rows, legible = [], set[int]()
        for chunk in read.split(CHUNK):
            # SHARPNESS times cosines, less the most that can be; a softmax would subtract the most there is.
            lowered = F.linear(chunk, self.vectors, bias)
            sure = torch.sigmoid(likeness(lowered.amax(1).float() / SHARPNESS + 1))
            legible.update(lowered[sure > LEGIBLE].argmax(1).tolist())
            mixed = (lowered.exp_() @ meanings).float()
            rows.append(mixed / mixed[:, -1:].clamp_min(1e-30) * (sure * (sure > FAINT))[:, None])
        return torch.cat(rows)[:count], legible


def _ink(extremes: Sequence[Tensor], scale: int, size: Sequence[int]) -> Tensor:
    """The difference of luminance within each slot of a picture at 1/2**scale of its size, [h, w], from the
    most of it, and of its negative, in each slot of the whole picture.
    """
    high, low = (F.max_pool2d(x, 1 << scale, ceil_mode=True)[0, 0] for x in extremes)
    return F.pad(high + low, (0, size[1] - high.shape[1], 0, size[0] - high.shape[0]))


def _darker_rows(prints: Tensor, ink: Tensor) -> tuple[Tensor, Tensor]:
    """Of each two slots above one another the one with more ink: [DIM, h, w], [h, w] -> half as high. A line
    of print is as high as both, so that one tells what it says.
    """
    lower = ink[1::2] > ink[::2]
    return torch.where(lower, prints[:, 1::2], prints[:, ::2]), torch.where(lower, ink[1::2], ink[::2])
