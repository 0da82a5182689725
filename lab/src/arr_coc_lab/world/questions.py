"""Questions about a drawn page: text, answer, family and evidence boxes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from arr_coc_lab.world.canvas import Fact, Rect, Thing
from arr_coc_lab.world.vocabulary import COLOURS, PARAPHRASES, SHAPES, plural, with_article


@dataclass(frozen=True)
class Question:
    """A question about a page.

    Attributes:
        text: the question.
        answer: the answer.
        family: one of `vocabulary.FAMILIES`.
        evidence: boxes (x0, y0, x1, y1) in px; empty where the answer is that something is absent.
        pieces: the answer in the pieces of the tokenizer, one per token.
    """

    text: str
    answer: str
    family: str
    evidence: tuple[Rect, ...]
    pieces: tuple[str, ...]


def _ask(
    rng: random.Random, family: str, pieces: tuple[str, ...], evidence: tuple[Rect, ...], **words: str
) -> Question:
    """Return a question of a family in one of its paraphrases, filled with `words`."""
    text = rng.choice(PARAPHRASES[family]).format(**words)
    return Question(text, "".join(pieces), family, evidence, pieces)


def _about_facts(rng: random.Random, facts: list[Fact]) -> Iterator[Question]:
    """Questions about the texts whose label occurs once."""
    often = Counter(f.label for f in facts)
    for f in facts:
        if often[f.label] == 1:
            yield _ask(rng, f.family, f.value, f.boxes, label=f.label, Label=f.label.capitalize())


def _about_one(rng: random.Random, things: list[Thing]) -> Iterator[Question]:
    """Questions about the colour of the only shape of a kind, and the kind of the only shape of a colour."""
    shapes, colours = Counter(t.shape for t in things), Counter(t.colour for t in things)
    for t in things:
        if shapes[t.shape] == 1:
            yield _ask(rng, "colour", (t.colour,), (t.box,), shape=t.shape)
        if colours[t.colour] == 1:
            yield _ask(rng, "shape", (t.shape,), (t.box,), colour=t.colour)


def _about_counts(rng: random.Random, things: list[Thing], most: int = 6) -> Iterator[Question]:
    """Questions about the number of things of a colour or shape, 0 to `most`."""
    kinds: list[tuple[str, list[Thing]]] = [
        (f"{c} shapes", [t for t in things if t.colour == c]) for c in COLOURS
    ]
    kinds += [(plural(s), [t for t in things if t.shape == s]) for s in SHAPES]
    by_number: dict[int, list[tuple[str, list[Thing]]]] = {}
    for what, group in kinds:
        by_number.setdefault(len(group), []).append((what, group))
    # One question for each number that occurs, so that no number is likelier than another.
    for number in range(most + 1):
        if number in by_number and (number > 0 or rng.random() < 0.5):
            what, group = rng.choice(by_number[number])
            yield _ask(rng, "count", (str(number),), tuple(t.box for t in group), what=what)


def _about_two(rng: random.Random, things: list[Thing], width: int) -> Iterator[Question]:
    """Questions that compare the sizes or horizontal places of two things, on a page `width` px wide."""
    pairs = Counter((t.colour, t.shape) for t in things)
    single = [t for t in things if pairs[t.colour, t.shape] == 1]
    rng.shuffle(single)
    for a, b in zip(single[::2], single[1::2], strict=False):
        names = {"a": f"{a.colour} {a.shape}", "b": f"{b.colour} {b.shape}"}
        if max(a.size, b.size) >= 1.35 * min(a.size, b.size) and rng.random() < 0.5:
            t = a if a.size > b.size else b
            yield _ask(rng, "larger", (t.colour, " " + t.shape), (a.box, b.box), **names)
        elif abs(a.x - b.x) >= 0.12 * width:
            t = a if a.x < b.x else b
            yield _ask(rng, "left", (t.colour, " " + t.shape), (a.box, b.box), **names)


def _about_presence(rng: random.Random, things: list[Thing]) -> Iterator[Question]:
    """Questions whether there is a thing of a colour and shape, some with yes and some with no."""
    present = {(t.colour, t.shape) for t in things}
    colours, shapes = sorted({c for c, _ in present}), sorted({s for _, s in present})
    for t in rng.sample(things, min(2, len(things))):
        boxes = tuple(u.box for u in things if (u.colour, u.shape) == (t.colour, t.shape))
        yield _ask(rng, "presence", ("yes",), boxes, a=with_article(f"{t.colour} {t.shape}"))
    for _ in range(max(1, min(2, len(things)))):
        # In 7 of 10 a pair whose colour and shape both occur on the page, but not on one thing.
        near = rng.random() < 0.7 and things
        c = rng.choice(colours if near else list(COLOURS))
        s = rng.choice(shapes if near else list(SHAPES))
        if (c, s) not in present:
            yield _ask(rng, "presence", ("no",), (), a=with_article(f"{c} {s}"))


def ask_all(rng: random.Random, facts: list[Fact], things: list[Thing], width: int) -> list[Question]:
    """Return all questions about a page `width` px wide in random order; counts and comparisons are
    sampled.
    """
    questions = [
        *_about_facts(rng, facts),
        *_about_one(rng, things),
        *_about_counts(rng, things),
        *_about_two(rng, things, width),
        *_about_presence(rng, things),
    ]
    rng.shuffle(questions)
    return questions
