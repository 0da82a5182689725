"""Meanings of words as vectors learned from dictionaries, and which words have to do with one another.

    related("salary")           (("wages", 0.83), ("remuneration", 0.82), ("payroll", 0.75), ...)
    inflections("sharing")      ("share", "shared", "shares")
    meaning("salary")           [WIDTH], of unit length; zeros for a word without a row

Some 21,000 common English words have a row; `making/meanings.py` learned them. The lexicon says which words
are printed for one another; this table, which words have to do with one another.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from arr_coc.guide.lexicon import stem

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
