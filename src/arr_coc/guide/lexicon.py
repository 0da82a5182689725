"""Words that may be printed in place of a question's words, from hand-made lists and learned meanings.

synonyms("Vendor:")                 ("seller", "supplier", "merchant", ..., "sold by", ...)
hints("When is it due?")            ("date", "time", "due", ...)
expand(["the", "amount", "due"])    (("total", 1), ("sum", 1), ...)
related("salary")                   (("wages", 0.83), ("remuneration", 0.82), ...)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

MAX_EXPANSIONS = 48  # the most words that `expand` gives
MAX_PHRASE_WORDS = 6  # the most words of a phrase that is looked up
MAX_WORD_CHARS = 80  # the most characters of a word of a question that are looked up
# Words that mean nothing by themselves; a phrase may hold them.
STOP_WORDS: frozenset[str] = frozenset(
    """
    a about all am an and any are as at be been being but by can could did do does doing for from get
    give given gives had has have he her here him his how i if in into is it its just let like may me
    might much many must my no not of off on one or our out over own please says say see shall she
    should show so some tell than that the their them then there these they this those through to too
    under up us was we were what what's when where which while who whom whose why will with would yes
    you your
    """.split()
)
SIGNS = " \t\n!\"&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»‘’“”„‹›–—…·•→✓✗|"  # stripped from both ends of a word
SLASH = re.compile(r"(?<=\w\w\w)/(?=\w\w\w)")  # the stroke of "Date/Time", not that of "S/N"
VOWEL = re.compile("[aeiouy]")
# One vowel and one consonant at the end: what lost an -e ("rat(e)") if it isn't doubled ("plan(n)ing").
SHORT_SYLLABLE = re.compile("[^aeiouy]*[aeiouy][^aeiouywx]$")


class LexiconEntry(NamedTuple):
    """A phrase in a group of phrases with one meaning."""

    text: str  # as written
    key: str  # its stems
    printed: bool  # whether pages bear it
    askable: bool  # whether "What is the ...?" can ask for it


class Lexicon(NamedTuple):
    """The lines of `lexicon.txt`; its keys are stems of phrases, joined by spaces."""

    groups: tuple[tuple[LexiconEntry, ...], ...]  # phrases of one meaning
    by_stems: dict[str, list[int]]  # of a phrase, the indices of its groups
    # of what people say, what is printed where it is answered ("owe > amount due, balance")
    bonds: dict[str, tuple[str, ...]]
    questions: dict[str, tuple[str, ...]]  # of question words, what the answer may stand by


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """Return the lexicon; read at the first call."""
    groups: list[tuple[LexiconEntry, ...]] = []
    by_stems: dict[str, list[int]] = {}
    bonds: dict[str, tuple[str, ...]] = {}
    questions: dict[str, tuple[str, ...]] = {}
    for line in Path(__file__).with_name("lexicon.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("?"):
            words, _, answers = line[1:].partition(" = ")
            for key in map(stems, _split(words)):
                questions[key] = (*questions.get(key, ()), *_split(answers))
        elif " > " in line:
            words, _, printed = line.partition(" > ")
            for key in map(stems, _split(words)):
                bonds[key] = (*bonds.get(key, ()), *_split(printed))
        elif line and not line.startswith("# "):
            group = tuple(_entry(text) for text in _split(line))
            for entry in group:
                by_stems.setdefault(entry.key, []).append(len(groups))
            groups.append(group)
    return Lexicon(tuple(groups), by_stems, bonds, questions)


def _entry(text: str) -> LexiconEntry:
    phrase = text.lstrip("~*")
    return LexiconEntry(phrase, stems(phrase), not text.startswith("*"), phrase == text)


def _split(line: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in line.split(","))


def plain_word(word: str) -> str:
    """Return a *normal* word: without case, accents and punctuation around it; a lone "%" or "#" stays."""
    text = word.casefold()
    if not text.isascii():
        letters = unicodedata.normalize("NFKD", text.replace("’", "'"))
        text = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return text.strip(SIGNS).removesuffix("'s") or text.strip()


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a word, not always a word: normal, without a plural's -s, -ing, -ed and a last
    -e.
    """
    text = plain_word(word).replace("-", "").replace("/", "")
    if len(text) < 4 or not text.isalpha():
        return text
    if text.endswith("ies") and len(text) > 4:
        text = text[:-2]
    elif text.endswith(("sses", "shes", "ches", "xes", "zzes")):
        text = text[:-2]
    elif text.endswith("s") and not text.endswith(("ss", "us", "is")):
        text = text[:-1]
    if text.endswith(("ing", "ed")) and not text.endswith("eed"):
        rest = text.removesuffix("ing").removesuffix("ed")
        text = _unended(rest) if VOWEL.search(rest) else text
    if len(text) > 4 and text.endswith("ll"):
        text = text[:-1]
    if len(text) > 3 and text.endswith("y") and text[-2] not in "aeiou":
        text = text[:-1] + "i"
    return text[:-1] if len(text) > 3 and text.endswith("e") and not SHORT_SYLLABLE.match(text[:-1]) else text


def _unended(rest: str) -> str:
    if len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "aeioulsz":
        return rest[:-1]
    return rest + "e" if SHORT_SYLLABLE.match(rest) else rest


@lru_cache(maxsize=65_536)
def stems(phrase: str) -> str:
    """Return the stems of a phrase's words, joined by spaces; kept, as phrases are short and come again."""
    return _joined_stems(SLASH.sub(" ", phrase).split())


def _joined_stems(words: Iterable[str]) -> str:
    return " ".join(filter(None, map(stem, words)))


def content_words(phrase: str) -> tuple[str, ...]:
    """Return the normal words of a phrase that carry meaning (no "the", "of", ...)."""
    words = (plain_word(word) for word in SLASH.sub(" ", phrase).split())
    return tuple(word for word in words if word and word not in STOP_WORDS)


def synonyms(phrase: str) -> tuple[str, ...]:
    """Return what else may be printed for a phrase: the other members of all groups that hold it."""
    return _others(stems(phrase))


def names(phrase: str) -> tuple[str, ...]:
    """Return what a question can call a phrase, as in "What is the ...?"; () for one of several senses.

    Two groups that share another member have one sense.
    """
    key, joined = stems(phrase), dict[str, None]()
    for group in _groups(key):
        own = [entry.text for entry in group if entry.askable and entry.key != key]
        if own and joined and joined.keys().isdisjoint(own):
            return ()
        joined |= dict.fromkeys(own)
    return tuple(joined)


def _groups(key: str) -> list[tuple[LexiconEntry, ...]]:
    return [lexicon().groups[place] for place in lexicon().by_stems.get(key, ())]


def _others(key: str) -> tuple[str, ...]:
    members = (entry for group in _groups(key) for entry in group)
    return tuple(dict.fromkeys(m.text for m in members if m.printed and m.key != key))


def hints(question: str) -> tuple[str, ...]:
    """Return what an answer may stand beside, by the question words; the longest that match count."""
    answers = lexicon().questions
    # Not by `stems`, which would keep questions of any length.
    words = (word[:MAX_WORD_CHARS] for word in SLASH.sub(" ", question).split())
    matches = _matches(_joined_stems(words).split(), answers)
    return tuple(dict.fromkeys(hint for _, _, key in matches for hint in answers[key]))


def expand(words: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return further printed words to look for, with the same meaning as words of a question.

    At most MAX_EXPANSIONS pairs of a word that isn't among `words` and the index of the word that it stands
    for; phrases are matched longest first, and take turns.
    """
    return _pairs(words, lexicon().by_stems, _printed)


def answers(words: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return printed words that answer words of a question ("owe": "balance"), as `expand` does."""
    return _pairs(words, lexicon().bonds, _bound)


def _pairs(
    words: Sequence[str], phrases: Container[str], look_up: Callable[[str], tuple[str, ...]]
) -> tuple[tuple[str, int], ...]:
    keys = [stem(word) for word in words]
    taken = set(keys)
    lists = [
        [(word, start + _head(words[start : start + length])) for word in look_up(key)]
        for start, length, key in _matches(keys, phrases)
        if length > 1 or plain_word(words[start]) not in STOP_WORDS
    ]
    pairs: list[tuple[str, int]] = []
    for turn in range(max(map(len, lists), default=0)):
        for candidates in lists:
            if turn < len(candidates) and stem(candidates[turn][0]) not in taken:
                taken.add(stem(candidates[turn][0]))
                pairs.append(candidates[turn])
    return tuple(pairs[:MAX_EXPANSIONS])


def _matches(keys: Sequence[str], phrases: Container[str]) -> list[tuple[int, int, str]]:
    """Start, length and joined stems of the phrases in a row of stems, greedily the longest first."""
    matches, start = [], 0
    while start < len(keys):
        for length in range(min(MAX_PHRASE_WORDS, len(keys) - start), 0, -1):
            key = " ".join(keys[start : start + length])
            if key in phrases:
                matches.append((start, length, key))
                start += length - 1
                break
        start += 1
    return matches


def _head(words: Sequence[str]) -> int:
    return next((i for i, word in enumerate(words) if plain_word(word) not in STOP_WORDS), 0)


@lru_cache(maxsize=4096)
def _printed(key: str) -> tuple[str, ...]:
    """Return the words of a phrase's synonyms, each once: single words first, those that mean little last."""
    return _single_words(key, _others(key))


@lru_cache(maxsize=4096)
def _bound(key: str) -> tuple[str, ...]:
    return _single_words(key, lexicon().bonds[key])


def _single_words(key: str, others: Sequence[str]) -> tuple[str, ...]:
    """Return the words of phrases, leaving out phrases that hold all stems of `key`."""
    own = set(key.split())
    phrases = [p for p in others if not own.issubset(stems(p).split())]
    single = [plain_word(phrase) for phrase in phrases if " " not in phrase]
    several = [word for phrase in phrases if " " in phrase for word in content_words(phrase)]
    words = dict.fromkeys(single + several)
    return tuple(sorted(words, key=lambda word: word in STOP_WORDS))


MEANINGS_FILE = "meanings.safetensors"
MEANING_WIDTH = 64  # width of the vectors of meanings
MAX_RELATED = 24  # the most words that `related` gives
ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")  # an ordinal number in figures, such as "30th"
MIN_COSINE = 0.6  # the least cosine of related words: about one in a thousand words has it


class Meanings(NamedTuple):
    """The table of word vectors, and which row is whose."""

    words: tuple[str, ...]  # in the order of their rows, the most frequent first
    rows: dict[str, int]  # by word
    by_start: dict[str, list[int]]  # rows by the first two letters, which a word shares with its stem
    vectors: Tensor  # [N, MEANING_WIDTH], of unit length
    weights: Tensor  # [N], how much each word says: the mean of weighed vectors is that of a text
    common: tuple[int, ...]  # rows of the words that print is compared with (`print_encoder.MeaningEncoder`)

    def row(self, word: str) -> int | None:
        """Return the row of a normal word, or of the most frequent word of its stem."""
        return self.rows[word] if word in self.rows else next(iter(self.of_stem(stem(word))), None)

    def of_stem(self, key: str) -> list[int]:
        """Return the rows of the words that have a stem."""
        return [row for row in self.by_start.get(key[:2], ()) if stem(self.words[row]) == key]


@lru_cache(maxsize=1)
def meanings() -> Meanings:
    """Return the vectors of meanings.safetensors; read at the first call."""
    with safe_open(Path(__file__).with_name(MEANINGS_FILE), framework="pt") as file:
        words = tuple(file.get_tensor("words").numpy().tobytes().decode().split("\n"))
        vectors = file.get_tensor("vectors").float()
        weights = file.get_tensor("weights").float()
        common = tuple(file.get_tensor("glossary").tolist())
    by_start: dict[str, list[int]] = {}  # stems of all words would take a third of a look's first question
    for row, word in enumerate(words):
        plain = word if word.isalpha() and word.isascii() else stem(word)
        by_start.setdefault(plain[:2], []).append(row)
    rows = {word: row for row, word in enumerate(words)}
    unit = vectors / vectors.norm(dim=1, keepdim=True).clamp_min(1e-9)
    return Meanings(words, rows, by_start, unit, weights, common)


def common_words() -> tuple[str, ...]:
    """Return the common words that print is compared with, the most frequent in English first."""
    table = meanings()
    return tuple(table.words[row] for row in table.common)


def meaning(word: str) -> Tensor:
    """Return the vector of a normal word, [MEANING_WIDTH] on the CPU; zeros if the table lacks it."""
    table = meanings()
    row = table.row(word)
    return torch.zeros(MEANING_WIDTH) if row is None else table.vectors[row]


def meanings_of(words: Sequence[str]) -> Tensor:
    """Return the vectors of normal words, [N, MEANING_WIDTH] on the CPU; zeros for words not in the table."""
    table = meanings()
    rows = [table.row(word) for word in words]
    vectors = table.vectors[[row or 0 for row in rows]]
    return vectors.masked_fill(torch.tensor([row is None for row in rows])[:, None], 0.0)


def text_meaning(words: Sequence[str]) -> Tensor:
    """Return the meaning of normal words together, [MEANING_WIDTH] of unit length; zeros without any row."""
    table = meanings()
    rows = [row for word in words if (row := table.row(word)) is not None]
    total = table.weights[rows] @ table.vectors[rows]
    return total / total.norm().clamp_min(1e-9)


@lru_cache(maxsize=4096)
def related(word: str, most: int = MAX_RELATED, least: float = MIN_COSINE) -> tuple[tuple[str, float], ...]:
    """Return words related to a normal word and their cosines, nearest first; none of its own stem."""
    table = meanings()
    row = table.row(word)
    if row is None:
        return ()
    top = (table.vectors @ table.vectors[row]).topk(min(4 * most, len(table.words)))
    nearest, taken = [], {stem(word), stem(table.words[row])}
    pairs = zip(top.values.tolist(), top.indices.tolist(), strict=True)
    for cosine, other in sorted(pairs, key=lambda pair: (-pair[0], pair[1])):
        key = stem(table.words[other])
        if cosine >= least and key not in taken:
            taken.add(key)
            nearest.append((table.words[other], min(1.0, cosine)))
    return tuple(nearest[:most])


AKIN = 0.75  # the least cosine of words that mean nearly the same
SPELLED = 0.84  # the least share of letters in common of a word and one that was meant


@lru_cache(maxsize=65_536)
def akin(word: str, kin: frozenset[str], least: float = AKIN) -> bool:
    """Return whether a normal word is one of some words, a form of one or means nearly the same.

    That is a cosine of `least`; a word that the table of meanings lacks may be one of them spelled wrong.
    """
    if word in kin or stem(word) in map(stem, kin):
        return True
    row = meanings().row(word)
    if row is None:
        return bool(get_close_matches(word, kin, 1, SPELLED))
    return float((meanings_of(sorted(kin)) @ meanings().vectors[row]).max()) >= least


REGULAR = ("", "s", "ed", "ing")  # ends of the forms of a verb that no table lists


@lru_cache(maxsize=4096)
def inflections(word: str, most: int = 4) -> tuple[str, ...]:
    """Return other forms of a normal word, the most frequent first: "share" of "sharing", 30 of "30th"."""
    if ordinal := ORDINAL.fullmatch(word):
        return (ordinal[1],)
    table, key = meanings(), stem(word)
    if len(key) < 3 or word == "news":
        return ()
    rows = table.of_stem(key)
    if not rows and word.endswith(("ed", "ing")):
        return tuple(form for form in (key + end for end in REGULAR) if form != word)
    return tuple(table.words[row] for row in rows if table.words[row] != word)[:most]
