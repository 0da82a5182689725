"""Wordings of questions by kind, and paraphrases of labels.

    phrase(rng, "value", label="Invoice number")   "What is the invoice number?"
    paraphrases(rng, "Vendor")                     ["Who is the seller?"], no word of the label in it

A fifth of the wordings of every kind and a seventh of the pairs of a label and its paraphrase are of the
test split alone.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from arr_coc.guide.lexicon import content_words, names, stem, stems

KINDS: tuple[str, ...] = (
    "value", "crossing", "price", "switch", "card", "implied", "title", "section", "chart", "colour", "shape",
    "count", "presence", "comparison", "position", "paraphrase", "paraphrase-unlisted", "global", "anomaly",
    "yes-no", "unanswerable", "word", "term",
)  # fmt: skip
"""Kinds of questions."""


def _sections(name: str) -> dict[str, tuple[str, ...]]:
    """Return the lines of a text file beside this one by the [section] they stand in."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return {section: tuple(lines) for section, lines in sections.items()}


def _pairs(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(label, question) of lines "label | question | question"."""
    parts = [[part.strip() for part in line.split("|")] for line in lines]
    return tuple((label, question) for label, *questions in parts for question in questions)


TEMPLATES: dict[str, tuple[str, ...]] = _sections("templates.txt")
"""Wordings by kind, or by the sort of the value; {Label} is the label as a sentence begins."""
PARAPHRASES: tuple[tuple[str, str], ...] = _pairs(_sections("paraphrases.txt")["listed"])
"""Labels and questions that mean them without a word of them."""
HELD_OUT_PARAPHRASES: tuple[tuple[str, str], ...] = _pairs(_sections("paraphrases.txt")["unlisted"])
"""The same, of the test split alone: by their meaning, which no lexicon lists."""
CAPITAL = ("within", "value")
"""Parts of a question that keep their capital."""


@lru_cache(maxsize=256)
def wordings(kind: str, split: str = "train") -> tuple[str, ...]:
    """Return the templates of a kind that a split may use: "test" all, the others all but the held-out
    fifth.
    """
    out = held_out_wordings(kind)
    return tuple(t for t in TEMPLATES[kind] if split == "test" or t not in out)


@lru_cache(maxsize=64)
def held_out_wordings(kind: str) -> tuple[str, ...]:
    """Return the fifth of a kind's templates that is of the test split alone, chosen by a hash."""
    ordered = sorted(TEMPLATES[kind], key=lambda text: zlib.crc32(f"wording:{text}".encode()))
    return tuple(ordered[: (len(ordered) + 4) // 5])


def held_out_pair(label: str, other: str) -> bool:
    """Return whether a label with one of its paraphrases is of the test split alone: one pair in seven."""
    return zlib.crc32("=".join(sorted((stems(label), stems(other)))).encode()) % 7 == 0


def phrase(rng: random.Random, kind: str, sort: str = "", *, split: str = "train", **parts: str) -> str:
    """Return a question of a kind in one of its wordings.

    Args:
        rng: chooses the wording.
        kind: a key of TEMPLATES.
        sort: of the value asked for; where templates know it, one in three questions names it alone.
        split: "test" takes held-out wordings half of the time, the others never.
        parts: what is filled in: label, within, row, column, other, value. Labels lose their capital inside a
            sentence three times of four.
    """
    if parts.get("within"):
        kind = "within"
    elif sort in TEMPLATES and rng.random() < 0.34:
        kind = sort
    low = rng.random() < 0.75
    filled = {name: _lowered(text) if low and name not in CAPITAL else text for name, text in parts.items()}
    filled |= {name.capitalize(): text[:1].upper() + text[1:] for name, text in filled.items()}
    options = held_out_wordings(kind) if split == "test" and rng.random() < 0.5 else wordings(kind, split)
    return rng.choice(options).format(**filled)


def _lowered(text: str) -> str:
    """Return a text without the capital of its first letter, unless it is all capitals or has digits."""
    plain = text[1:2].islower() and not any(c.isdigit() for c in text)
    return text[:1].lower() + text[1:] if plain else text


def paraphrases(
    rng: random.Random, label: str, within: str = "", sort: str = "", *, split: str = "train"
) -> list[str]:
    """Up to two questions that mean a label without a content word of it; none where none is known.

    Args:
        rng: chooses the wording.
        label: as printed.
        within: the card or section that it belongs to, if any.
        sort: of its value, as in `phrase`.
        split: "test" takes held-out pairs where there are some, the others never.
    """
    own = _content(label)
    written = _allowed(label, _by_stems(PARAPHRASES).get(stems(label), ()), split)
    named = _allowed(label, _renamed(label), split)
    candidates = [_placed(text, within) for text in rng.sample(written, min(2, len(written)))]
    for name in rng.sample(named, min(2, len(named))):
        candidates.append(phrase(rng, "value", sort, split=split, label=name, within=within))
    rng.shuffle(candidates)
    return [text for text in dict.fromkeys(candidates) if own.isdisjoint(stems(text).split())][:2]


def unlisted(label: str) -> tuple[str, ...]:
    """Return the questions of HELD_OUT_PARAPHRASES for a label."""
    return _by_stems(HELD_OUT_PARAPHRASES).get(stems(label), ())


def _content(label: str) -> set[str]:
    """Return the stems of a label's content words, or of all where it has none ("From")."""
    return {stem(word) for word in content_words(label) or label.split()}


@lru_cache(maxsize=2)
def _by_stems(pairs: tuple[tuple[str, str], ...]) -> dict[str, tuple[str, ...]]:
    """Return the questions of pairs by the stems of their labels."""
    questions: dict[str, tuple[str, ...]] = {}
    for label, question in pairs:
        questions[stems(label)] = (*questions.get(stems(label), ()), question)
    return questions


@lru_cache(maxsize=4096)
def _renamed(label: str) -> tuple[str, ...]:
    """Other names of a label that share no content word with it."""
    own = _content(label)
    return tuple(other for other in names(label) if own.isdisjoint(stems(other).split()))


def _allowed(label: str, others: Sequence[str], split: str) -> list[str]:
    """Return the paraphrases of a label that a split may use; of "test" the held-out ones where there are
    some.
    """
    out = [other for other in others if held_out_pair(label, other)]
    if split == "test" and out:
        return out
    return [other for other in others if split == "test" or other not in out]


def _placed(question: str, within: str) -> str:
    """Return a question restricted to a part of the page."""
    return f"{within}: {question[:1].lower()}{question[1:]}" if within else question
