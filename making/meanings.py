"""The table of meanings (`guide.meanings`), learned from dictionaries.

    apt-get install --no-install-recommends wordnet-base dict-gcide
    python -m making.meanings src/arr_coc/core/guide

Two words mean something alike if much the same words stand near them: how much more often each stands near
each other one than chance would have it (positive pointwise mutual information, with the smoothing of Levy
et al. 2015), of which a singular value decomposition keeps `MEANING_WIDTH` numbers a word. Definitions are a
good text to count in: they say what a word is in other words of the same matter. Only common words get a row.
Two minutes of a core, the same table each time but for rounding.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm
from wordfreq import top_n_list

from arr_coc.files.saved import write_tensors
from arr_coc.guide.lexicon import MEANING_WIDTH, MEANINGS_FILE, STOP_WORDS

WORDNET = Path("/usr/share/wordnet")
GCIDE = Path("/usr/share/dictd/gcide.dict.dz")
WORD = re.compile(r"[a-z][a-z'-]+")
COMMON = 25_000
"""The most frequent words of English that may get a row."""
LEAST = 4
"""Times that a word stands in the dictionaries, to get one."""
WINDOW = 8
"""Words to either side that stand near a word; farther ones count for less."""
RELATIONS = ("@", "+", "&", "^", "=", "#p", "%p", "*", ">", "$")
"""WordNet's pointers to words of the same matter: more general, derived, alike, opposite, part of, ..."""
RELATED = 12
"""The most words that pointers add to a definition."""
GLOSSARY, SHORTEST = 3000, 3
"""Words that print is compared with (`guide.meanings`), and the characters they have at least."""
EMPTY = frozenset(
    "the of a an to in and or is by for that as with on it be are which from at this its not was also has "
    "have one any used his their he who into but such can you if".split()
)
"""Words that stand near every other."""


def wordnet() -> Iterator[str]:
    """Every set of synonyms with what it is related to and its definition, in lower case."""
    rows = []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (WORDNET / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if not line.startswith(" "):
                fields, _, gloss = line.partition(" | ")
                rows.append((fields.split(), gloss))
    words = {(fields[0], _part(fields[2])): _words(fields) for fields, _ in rows}
    for fields, gloss in rows:
        own = " ".join(_words(fields))
        start = 4 + 2 * int(fields[3], 16)
        pointers = [fields[start + 1 + 4 * i : start + 4 + 4 * i] for i in range(int(fields[start]))]
        others = [
            word
            for symbol, place, part in pointers
            if symbol in RELATIONS
            for word in words.get((place, _part(part)), ())
        ]
        yield f"{own} {own} {' '.join(others[:RELATED])} {gloss}".replace("_", " ").lower()


def _part(letter: str) -> str:
    """A part of speech; WordNet writes "s" for adjectives that are like another."""
    return "a" if letter == "s" else letter


def _words(fields: list[str]) -> list[str]:
    """The words of a set of synonyms."""
    return [fields[4 + 2 * i].split("(")[0] for i in range(int(fields[3], 16))]


def gcide() -> Iterator[str]:
    """The paragraphs of the Collaborative International Dictionary of English, in lower case."""
    paragraph: list[str] = []
    with gzip.open(GCIDE, "rt", encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.strip() or line[0].isalpha():
                if len(paragraph) > 3:
                    yield " ".join(paragraph).lower()
                paragraph = []
            if "[1913" not in line and "[PJC]" not in line:
                paragraph.append(re.sub(r"\\[^\\]*\\", "", line.strip()))


def near(texts: list[list[int]], words: int) -> Tensor:
    """How often each word stands near each other, sparse [words, words], nearer ones counting for more."""
    nowhere = torch.zeros(2, 0, dtype=torch.long)
    counts = torch.sparse_coo_tensor(nowhere, torch.zeros(0), (words, words)).coalesce()
    for start in tqdm(range(0, len(texts), 20_000), desc="counting"):
        pairs, weights = [], []
        for text in texts[start : start + 20_000]:
            line = torch.tensor(text)
            for step in range(1, min(WINDOW, len(text) - 1) + 1):
                pairs.append(torch.stack((line[:-step], line[step:])))
                weights.append(torch.full((len(text) - step,), 1 / (1 + 0.15 * step)))
        every, weight = torch.cat(pairs, 1), torch.cat(weights)
        both = torch.cat((every, every.flip(0)), 1)
        counts = (counts + torch.sparse_coo_tensor(both, weight.repeat(2), (words, words))).coalesce()
    return counts


def learn() -> tuple[list[str], Tensor]:
    """The words with a row, the most frequent in definitions first, and their vectors [N, MEANING_WIDTH]."""
    lines = [
        [word for word in WORD.findall(text) if word not in EMPTY]
        for source in (wordnet, gcide)
        for text in source()
    ]
    frequencies = Counter(word for line in lines for word in line)
    common = set(top_n_list("en", COMMON))
    words = [word for word, times in frequencies.most_common() if times >= LEAST and word in common]
    rows = {word: row for row, word in enumerate(words)}
    texts = [[rows[word] for word in line if word in rows] for line in lines]
    counts = near([text for text in texts if len(text) > 1], len(words))
    each = counts.sum(1).to_dense()
    (first, second), values = counts.indices(), counts.values()
    chance = each[first] * (each**0.75 / (each**0.75).sum())[second]
    gain = (values / chance).log()
    kept = gain > 0
    matrix = torch.sparse_coo_tensor(
        torch.stack((first, second))[:, kept], gain[kept], counts.shape
    ).coalesce()
    torch.manual_seed(0)
    u, s, _ = torch.svd_lowrank(matrix, MEANING_WIDTH + 16, niter=4)
    vectors = (u * s.sqrt())[:, :MEANING_WIDTH]
    return words, vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-9)


def glossary(words: list[str]) -> list[int]:
    """The rows of the words that print is compared with, the most frequent in English first."""
    rows = {word: row for row, word in enumerate(words)}
    fit = (word for word in top_n_list("en", COMMON) if word not in STOP_WORDS and len(word) >= SHORTEST)
    return [rows[word] for word in fit if word in rows][:GLOSSARY]


def main(folder: str) -> None:
    """Learn the table and write it into a folder."""
    words, vectors = learn()
    tensors = {
        "words": torch.tensor(list("\n".join(words).encode()), dtype=torch.uint8),
        "vectors": (vectors * 127).round().to(torch.int8),
        "glossary": torch.tensor(glossary(words), dtype=torch.int32),
    }
    write_tensors(tensors, Path(folder) / MEANINGS_FILE, {"learned from": "WordNet, GCIDE"})


if __name__ == "__main__":
    main(sys.argv[1])
