"""Varies the wording of questions: other phrases, courtesies around them, lower case, misspellings.

    as_typed("What is the total?", rng)   "According to this page, tell me the totl."

The evidence stays the same.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from string import ascii_lowercase

from arr_coc_lab.world.browser.chromium import Box, Word
from arr_coc_lab.world.browser.page import Inquired
from arr_coc_lab.world.browser.phrases import phrase

# questions that can be reworded around their middle
WHAT_IS = re.compile(r"what(?: is|'s|s) (the [^?.]+)\??", re.IGNORECASE)
ORDERS = (
    "Tell me {}.", "Give me {}.", "Find {}.", "Read {}.", "Read off {}, please.", "I need {}.",
    "Look up {}.", "Could you tell me {}?", "Can you find {}?", "Do you see {}?", "Please state {}.",
    "Extract {}.", "What would {} be?", "Which is {}?", "I want to know {}.", "Name {}.", "{}?", "{}",
    "And {}?", "What about {}?", "Where can I find {}?", "Where is {} given?", "Show me {}.", "Locate {}.",
    "Return {}.",
)  # fmt: skip
BEFORE = (
    "According to this page, ", "According to the document, ", "According to the screenshot, ",
    "Based on the image, ", "Based on what is shown, ", "From the picture: ", "Going by this document, ",
    "Hey, ", "Hi! ", "In the image, ", "In this picture, ", "In this screenshot, ", "Look at the image. ",
    "Look at the page and answer: ", "On this page, ", "On the screen, ", "Please answer: ",
    "Please tell me: ", "Q: ", "Question: ", "Quick question: ", "Read the document and answer. ", "So, ",
    "Using the image, ", "You are given a screenshot. ",
)  # fmt: skip
AFTER = (
    " Answer briefly.", " Answer in one word.", " Answer the question using a single word or phrase.",
    " Answer with a number or a name.", " Be brief.", " Be precise.", " Do not explain.",
    " Give a short answer.", " Give only the value.", " Give the exact text.", " I can't find it.",
    " I need it quickly.", " Just the answer.", " No explanation, please.", " Please.", " Quote it.",
    " Reply with the answer only.", " Thanks!", " Thank you.", " Write only the answer.",
)  # fmt: skip

SHORT = 4  # words of at most so many letters are never misspelt


def as_typed(text: str, rng: random.Random) -> str:
    """Return a question with random changes as users type it; two in five are unchanged."""
    if rng.random() < 0.25:
        text = reworded(text, rng)
    roll = rng.random()
    if roll < 0.15:
        before = rng.choice(BEFORE)
        text = before + (text if before[-2] in ".!:" else text[:1].lower() + text[1:])
    elif roll < 0.3:
        text = text + rng.choice(AFTER)
    roll = rng.random()
    if roll < 0.12:
        return text.lower() if roll < 0.09 else text.upper()
    return misspelt(text, rng) if roll > 0.9 else text


def reworded(text: str, rng: random.Random) -> str:
    """Reword a question like "What is the X?"; others are unchanged."""
    match = WHAT_IS.fullmatch(text.strip())
    if match is None:
        return text
    other = rng.choice(ORDERS).format(match[1])
    return other[:1].upper() + other[1:]


def misspelt(text: str, rng: random.Random) -> str:
    """Replace or drop a letter in most of a question's long words."""
    words = text.split()
    for i, word in enumerate(words):
        if len(word) > SHORT and rng.random() < 0.7:
            words[i] = slip(word, rng)
    return " ".join(words)


def slip(word: str, rng: random.Random) -> str:
    """Replace or drop one inner letter of a word of three letters or more."""
    at = rng.randrange(1, len(word) - 1)
    letter = rng.choice(ascii_lowercase)
    return rng.choice((word[:at] + letter + word[at + 1 :], word[:at] + word[at + 1 :]))


GAP = 0.9  # widest space between two words of a run, in font sizes
NEAR = 5.0  # widest space between a run and its neighbour, in font sizes
CORNER = 0.3  # share of the sides within which a run is in a corner
LONGEST = 6  # most words of a run that a question names
# wordings of questions about the text at an edge
EDGES: dict[str, tuple[str, ...]] = {
    "top": (
        "What is written at the very top?", "What is at the top?", "What stands at the top of the page?",
        "Read the first line.", "What does the first line say?", "What is the first thing written here?",
        "Which text stands highest?", "What comes first on this page?", "top line?",
        "Quote the uppermost line.", "What does it say at the top?",
        "What is printed right at the top of the picture?",
    ),
    "bottom": (
        "What is written at the very bottom?", "What is at the bottom?", "What does the footer say?",
        "Read the last line.", "What does the last line say?", "What is the last thing written here?",
        "Which text stands lowest?", "What comes last on this page?", "bottom line?",
        "What stands at the foot of the page?", "What does it say at the bottom?",
        "What is printed right at the bottom of the picture?",
    ),
}  # fmt: skip
# wordings of questions about the text in a corner
CORNERS = (
    "What is in the {corner} corner?", "What is written in the {corner} corner?", "{corner} corner?",
    "Which text is {corner}?", "What does it say at the {corner}?", "Read what is at the {corner}.",
    "What stands at the {corner}?", "What can be read in the {corner} of the page?",
)  # fmt: skip
# wordings of questions about how often a text is printed
REPEATS = (
    "How many entries are {label}?", "How many rows have {label}?", "How many are {label}?",
    "How many {label} are there?", "How often does {label} occur?", "How often is {label} written?",
    "How many times does it say {label}?", "Count how often {label} appears.", "How many say {label}?",
    "How many are from {label}?", "How many times is {label} listed?", "Count the entries with {label}.",
)  # fmt: skip
MAX_REPEATS = 12
SIDES = {"top": ("top", "upper"), "bottom": ("bottom", "lower"), "left": ("left",), "right": ("right",)}


@dataclass(frozen=True)
class Run:
    """Adjacent words of one line, from left to right."""

    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def size(self) -> float:
        """Font size in px."""
        return max(word.size for word in self.words)

    @property
    def box(self) -> Box:
        """Box around all of the words."""
        corners = zip(*(word.box for word in self.words), strict=True)
        x0, y0, x1, y1 = corners
        return min(x0), min(y0), max(x1), max(y1)


def layout_questions(
    words: Sequence[Word], size: tuple[int, int], rng: random.Random, most: int = 2
) -> list[Inquired]:
    """At most `most` questions about where print is in a window, each with its evidence boxes.

    `words` are all that are at least partly in the window of `size` (width, height), with boxes in its px.
    """
    whole = [all(_reach(word.box, side, size) >= 0 for side in SIDES) for word in words]
    inside = [word for word, all_of_it in zip(words, whole, strict=True) if all_of_it]
    cut = [word.box for word, all_of_it in zip(words, whole, strict=True) if not all_of_it]
    runs = runs_of(inside)
    if len(runs) < 3:
        return []
    rules = [  # generators: only those that are drawn do any work
        _edges(runs, cut, size, rng),
        _corners(runs, cut, size, rng),
        _neighbours(runs, rng),
        _numbers(inside, rng),
        _repeats(runs, rng),
    ]
    rng.shuffle(rules)
    questions = (rng.choice(every) for every in map(list, rules) if every)
    return list(islice(questions, most))


def runs_of(words: Sequence[Word]) -> list[Run]:
    """Group words into runs, from top to bottom."""
    lines: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.box[0]):
        for line in reversed(lines):
            last = line[-1]
            gap = word.box[0] - last.box[2]
            alike = 0.7 < word.size / max(last.size, 1e-6) < 1.4
            if alike and -0.5 * word.size <= gap <= GAP * word.size and _shared(word.box, last.box, 1) > 0.6:
                line.append(word)
                break
        else:
            lines.append([word])
    return sorted((Run(tuple(line)) for line in lines), key=lambda run: (run.box[1], run.box[0]))


def _reach(box: Box, side: str, size: tuple[int, int]) -> float:
    """Distance in px of a box from a side of a window of (width, height)."""
    x0, y0, x1, y1 = box
    return {"top": y0, "bottom": size[1] - y1, "left": x0, "right": size[0] - x1}[side]


def _shared(a: Box, b: Box, axis: int) -> float:
    """Overlap of two boxes along an axis, as a share of the shorter side."""
    low, high = max(a[axis], b[axis]), min(a[axis + 2], b[axis + 2])
    return (high - low) / max(1e-6, min(a[axis + 2] - a[axis], b[axis + 2] - b[axis]))


def _asked(text: str, answer: Run, *evidence: Run) -> Inquired:
    return Inquired("position", text, answer.text, tuple(w.box for run in evidence for w in run.words))


def _edges(runs: list[Run], cut: list[Box], size: tuple[int, int], rng: random.Random) -> Iterator[Inquired]:
    """Questions about the first and the last line, unless cut-off text lies beyond it."""
    for side, wordings in EDGES.items():
        outermost = min(runs, key=lambda run: _reach(run.box, side, size))
        beyond = _reach(outermost.box, side, size) + outermost.size
        if all(_reach(box, side, size) > beyond for box in cut):
            line = [run for run in runs if _shared(run.box, outermost.box, 1) > 0.5]
            whole = Run(tuple(word for run in sorted(line, key=lambda run: run.box[0]) for word in run.words))
            yield _asked(rng.choice(wordings), whole, whole)


def _corners(
    runs: list[Run], cut: list[Box], size: tuple[int, int], rng: random.Random
) -> Iterator[Inquired]:
    """Questions about a corner with one run, unless cut-off text is near it."""
    for corner in product(("left", "right"), ("top", "bottom")):
        near = [run for run in runs if _cornered(run.box, corner, size)]
        if near and not any(_cornered(box, corner, size) for box in cut):
            across, down = corner
            reach = [_reach(run.box, across, size) + _reach(run.box, down, size) for run in near]
            best = near[reach.index(min(reach))]
            name = f"{rng.choice(SIDES[down])} {across}"
            yield _asked(rng.choice(CORNERS).format(corner=name), best, best)


def _cornered(box: Box, corner: tuple[str, str], size: tuple[int, int]) -> bool:
    """Return whether a box is near both sides of a corner."""
    return all(_reach(box, side, size) < CORNER * length for side, length in zip(corner, size, strict=True))


def _neighbours(runs: list[Run], rng: random.Random) -> Iterator[Inquired]:
    """Questions about what is above, below, left and right of a run that occurs once."""
    texts = [run.text.lower() for run in runs]
    short = [run for run in runs if len(run.words) <= LONGEST and len(run.text) > 2]
    named = [run for run in short if sum(run.text.lower() in text for text in texts) == 1]
    for run in rng.sample(named, min(4, len(named))):
        for side, axis, sign in (("below", 1, 1), ("above", 1, -1), ("right", 0, 1), ("left", 0, -1)):
            other = _beside(run, runs, axis, sign)
            if other is not None:
                yield _asked(phrase(rng, side, label=run.text), other, run, other)


def _beside(run: Run, runs: list[Run], axis: int, sign: int) -> Run | None:
    """Return the nearest run that faces another on one side; None if it is far or not the only one."""

    def gap(other: Run) -> float:
        return other.box[axis] - run.box[axis + 2] if sign > 0 else run.box[axis] - other.box[axis + 2]

    facing = [
        other for other in runs
        if other is not run and gap(other) > -0.3 * run.size and _shared(other.box, run.box, 1 - axis) > 0.4
    ]  # fmt: skip
    if not facing:
        return None
    nearest = min(facing, key=gap)
    far = gap(nearest) > (NEAR if axis else 3 * NEAR) * run.size
    limit = gap(nearest) + 0.5 * run.size
    rivals = any(other is not nearest and gap(other) < limit for other in facing)
    return None if far or rivals else nearest


def _numbers(words: Sequence[Word], rng: random.Random) -> Iterator[Inquired]:
    """Questions about where a number is that is printed once."""
    counts = Counter(word.text for word in words)
    for word in words:
        number = len(word.text) > 1 and any(letter.isdigit() for letter in word.text)
        if number and counts[word.text] == 1:
            yield Inquired("word", phrase(rng, "word", label=word.text), word.text, (word.box,))


def _repeats(runs: list[Run], rng: random.Random) -> Iterator[Inquired]:
    """Questions about how often a short text is printed."""
    places: dict[str, list[Run]] = {}
    for run in runs:
        places.setdefault(run.text.casefold(), []).append(run)
    for same in places.values():
        text = same[0].text
        if 2 <= len(same) <= MAX_REPEATS and len(text) > 2 and len(same[0].words) <= LONGEST:
            boxes = tuple(word.box for run in same for word in run.words)
            yield Inquired("count", rng.choice(REPEATS).format(label=text), str(len(same)), boxes)
