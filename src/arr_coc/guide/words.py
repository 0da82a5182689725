"""Words as vectors by their letters, so that any word has one and a wrong letter costs little.

    split_words("Who pays INV-204?")      ["who", "pays", "inv-204"]
    WordEncoder()(["total", "tota1"])     [2, 96], of unit length

A word is a bag of hashed character n-grams (Bojanowski et al. 2017) plus a small convolution over its
characters. Case, accents and punctuation around a word are dropped: what is printed and what is asked are
often spelled differently in these.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.choose.filters import unit
from arr_coc.guide.lexicon import CUT

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.,:;-_/%$€£()+=#@&'\"!?*<>"
"""Characters that the eyes are taught to tell apart; case and accents aside."""
LONGEST = 24
"""Characters of a word that the convolution reads."""
BUCKETS = 20_000
"""Rows of the table of hashed n-grams."""
DIM = 96
"""Width of the vectors of words and of what is printed."""


def folded(text: str) -> str:
    """A text in lower case and without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


@lru_cache(maxsize=100_000)
def normal(word: str) -> str:
    """A word as it is compared: folded, without punctuation around it; signs alone stay."""
    plain = folded(word)
    return plain.strip(".,:;!?\"'“”‘’«»()[]{}<>|*_=-–—·•…/\\") or plain


def split_words(text: str) -> list[str]:
    """The words of a text in order, each `normal`, without empty ones."""
    return [word for word in (normal(part[:CUT]) for part in text.split()) if word]


@lru_cache(maxsize=100_000)
def _grams(word: str) -> tuple[int, ...]:
    """Rows of the table for a normal word: its n-grams of 1 to 4 characters with its borders, and itself."""
    framed = f"<{word}>"
    grams = {framed} | {framed[i : i + n] for n in (1, 2, 3, 4) for i in range(len(framed) - n + 1)}
    return tuple(zlib.crc32(gram.encode()) % BUCKETS for gram in sorted(grams))


@lru_cache(maxsize=100_000)
def _letters(word: str) -> tuple[int, ...]:
    """The characters of a normal word as numbers: 0 padding, 1 any other than those of ALPHABET."""
    return tuple(ALPHABET.find(letter) + 2 for letter in word[:LONGEST]) + (0,) * (LONGEST - len(word))


class WordEncoder(nn.Module):
    """Vectors of unit length from the letters of words."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(BUCKETS, DIM, mode="mean")
        nn.init.normal_(self.table.weight, std=0.5)
        self.letters = nn.Embedding(len(ALPHABET) + 2, 32, padding_idx=0)
        self.spell = nn.Sequential(
            nn.Conv1d(32, 96, 3, padding=1), nn.ReLU(), nn.Conv1d(96, 96, 3, padding=1), nn.ReLU()
        )
        self.join = nn.Linear(96, DIM)

    def forward(self, words: Sequence[str]) -> Tensor:
        """The vectors [W, DIM] of normal words (see `normal`), float32."""
        if not words:
            return self.join.weight.new_zeros(0, DIM, dtype=torch.float32)
        device = self.join.weight.device
        grams = [_grams(word) for word in words]
        rows = torch.tensor([row for gram in grams for row in gram], device=device)
        starts = torch.tensor([0, *(len(gram) for gram in grams[:-1])], device=device).cumsum(0)
        letters = torch.tensor([_letters(word) for word in words], device=device)
        spelled = self.spell(self.letters(letters).movedim(1, 2))
        spelled = spelled.masked_fill(F.pad(letters, (0, 0))[:, None] == 0, 0.0).amax(-1)
        return unit(self.table(rows, starts) + self.join(spelled))
