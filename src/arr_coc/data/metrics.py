"""Metrics of visual question answering: (answer, truths) -> 0 to 1; a ValueError without truths.

Each follows the official program, quirks included; a docstring states where it doesn't.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

Metric = Callable[[str, Sequence[str]], float]

_NUMBER_WORDS = "zero one two three four five six seven eight nine ten"
_NUMBERS = {word: str(value) for value, word in enumerate(_NUMBER_WORDS.split())} | {"none": "0"}
ARTICLES = ("a", "an", "the")
_MARKS = ';/[]"{}()=+\\_-><@`,?!'  # apostrophe, colon and full stop aren't among them
_CONTRACTIONS = """
    ain't aren't can't could've couldn't didn't doesn't don't hadn't hasn't haven't he'd he's how'd how'll
    how's isn't it'd it'll ma'am might've mightn't must've mustn't needn't not've o'clock oughtn't shan't
    should've shouldn't somebody'd somebody'll somebody's someone'd someone'll someone's something'd
    something'll that's there'd there're there's they'd they'll they're they've 'twas wasn't we've weren't
    what'll what're what's what've when's where'd where's where've who'd who'll who's who've why'll why're
    why's won't would've wouldn't y'all you'd you'll you're you've

    couldn't've hadn't've he'd've it'd've mightn't've 'ow's'at she'd've shouldn't've somebody'd've
    someone'd've something'd've there'd've they'd've we'd've who'd've wouldn't've y'all'd've y'all'll you'd've
"""
# The official table holds every contraction with one of its apostrophes missing. What means something else
# without it (its, lets, shed, well, were, ill) is not in it.
_WHOLE = {
    word[: mark.start()] + word[mark.end() :]: word
    for word in _CONTRACTIONS.split()
    for mark in re.finditer("'", word)
}


def normalise(text: str) -> str:
    """Return a text in lower case, number words as digits, no articles or marks, apostrophes put back.

    The official program of VQA does the same (Antol et al. 2015, GT-Vision-Lab/VQA).
    """
    text = re.sub(r"[\n\t]", " ", text).strip()
    joins = re.search(r"\d,\d", text)  # 1,000: then no mark leaves a space, wherever it stands
    marks = {m: "" if joins or f"{m} " in text or f" {m}" in text else " " for m in _MARKS}
    text = re.sub(r"\.(?!\d)", "", text.translate(str.maketrans(marks)))
    words = (_NUMBERS.get(word, word) for word in text.lower().split())
    return " ".join(_WHOLE.get(word, word) for word in words if word not in ARTICLES)


def anls(answer: str, truths: Sequence[str], threshold: float = 0.5) -> float:
    """Normalised Levenshtein similarity to the nearest truth; 0 where it is below `threshold` (DocVQA).

        s = max over truths of 1 - edits(answer, truth) / max(len(answer), len(truth))

    Case and runs of white space are ignored. Exactly at the threshold the score stays, as in the challenge's
    program; the paper (Biten et al. 2019, eq. 1) would give 0.
    """
    check_truths(truths)
    if not 0 <= threshold <= 1:
        raise ValueError(
            f"threshold {threshold!r} is not a similarity: use a number from 0 to 1, usually 0.5"
        )
    text = " ".join(answer.lower().split())
    best = max(similarity(text, " ".join(truth.lower().split())) for truth in truths)
    return best if best >= threshold else 0.0


def similarity(a: str, b: str) -> float:
    """1 - edits(a, b) / length of the longer text; 1 for two empty ones."""
    length = max(len(a), len(b))
    return 1.0 if length == 0 else 1 - _edits(a, b) / length


def _edits(a: str, b: str) -> int:
    """Levenshtein distance: the fewest insertions, deletions and replacements that turn `a` into `b`."""
    row = list(range(len(b) + 1))  # one row of the table of distances, of prefixes of `b`
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def f1(answer: str, truths: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of words, with the best truth (Rajpurkar et al. 2016).

    Words are compared after `normalise`; if neither has a word, it is 1.
    """
    check_truths(truths)
    return max(_f1(normalise(answer).split(), normalise(truth).split()) for truth in truths)


def _f1(words: Sequence[str], truth: Sequence[str]) -> float:
    if not words or not truth:
        return float(not words and not truth)
    both = sum((Counter(words) & Counter(truth)).values())
    return 2 * both / (len(words) + len(truth))


def exact_match(answer: str, truths: Sequence[str]) -> float:
    """1 if the answer is one of the truths, letter by letter; white space around both is dropped."""
    check_truths(truths)
    return float(answer.strip() in {truth.strip() for truth in truths})


def loose_match(answer: str, truths: Sequence[str]) -> float:
    """`exact_match` that also ignores case and full stops at the end, as LLaVA's scripts do for GQA."""
    check_truths(truths)
    return float(_plain(answer) in {_plain(truth) for truth in truths})


def _plain(text: str) -> str:
    return text.strip().rstrip(".").rstrip().lower()


def check_truths(truths: Sequence[str]) -> None:
    """Raise a ValueError for truths that are one string or none."""
    if isinstance(truths, str):  # its letters would count as truths
        raise ValueError(f"truths are one string {truths[:40]!r}: pass a list of strings")
    if len(truths) == 0:
        raise ValueError("there are no truths to compare with: score only questions that have an answer")
