"""Rules that turn a measured viewport into questions, one rule per sort of fact.

inquire(rng, Facts.of(measured, scale), absent)                    of a document, with their boxes
inquire(rng, Facts.of(measured, scale), absent, of=INTERFACE)      of a screen, form, mail or shop
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from arr_coc_lab.world.browser.chromium import Box, Word
from arr_coc_lab.world.browser.page import Inquired
from arr_coc_lab.world.browser.phrases import paraphrases, phrase

T = TypeVar("T")
MAX_QUESTIONS = 12
DOCUMENT: dict[str, int] = {
    "crossing": 4, "term": 4, "section": 3, "value": 3, "word": 2, "title": 1,
    "presence": 1, "unanswerable": 1, "global": 1,
}  # fmt: skip
"""Most questions per rule on a page of documentation, in order of the rules."""
INTERFACE: dict[str, int] = {
    "crossing": 3, "pair": 5, "control": 3, "price": 2, "card": 3, "section": 2, "term": 2, "meaning": 2,
    "order": 2, "count": 1, "word": 2, "button": 2, "title": 1, "presence": 1, "unanswerable": 1, "global": 1,
}  # fmt: skip
"""The same for an interface."""
PRESENCE = (
    "Is {} mentioned here?", "Does this page mention {}?", "Does {} occur here?", "Is anything said of {}?",
    "Can I read about {} here?", "Does it say {} anywhere?",
)  # fmt: skip
OPENING = (
    "What is the first paragraph under {}?", "How does the section {} begin?",
    "Read the first paragraph of {}.", "What comes first under the heading {}?", "How does {} start?",
)  # fmt: skip
BUTTON = (
    "Where is the {} button?", "Where do I click for {}?", "Where can I find {}?", "How do I get to {}?",
    "Point at {}.", "Which button is {}?", "Locate {}.", "Where's {}?", "click {}", "{}",
)  # fmt: skip
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
PLACED = (
    "What is the {} item under {}?", "Which entry is {} under {}?", "{} item of {}?",
    "What comes {} under {}?", "What is the {} one in {}?", "Read the {} entry of {}.",
    "What's {} in the list {}?",
)  # fmt: skip
COUNTED = (
    "How many items are listed under {}?", "How many entries does {} have?", "How many are there under {}?",
    "Count the entries of {}.", "What is the number of items under {}?",
)  # fmt: skip
STRUCTURE = ("crossing", "term", "section", "value", "switch", "price", "card", "position")
"""Kinds of questions that need a page's structure, not only its words."""
MAX_ANSWER = 400
"""Characters of an answer."""
MAX_LINES = 24
"""Lines of a section that is asked for as a whole."""
SMALLEST = 7.0
"""Least font size in px of a word that is asked for."""
NUMBERED = re.compile(r"^(?:(?:chapter|section|appendix|part)\s+)?[\dA-Z]*\.?\d+(?:\.\d+)*\.?\s+", re.I)
EDGES = "\"'“”‘’`.,;:!?()[]{}<>«»…—–-*#¶/|="


class Text(NamedTuple):
    """A text with the boxes of its lines, in px of the picture."""

    plain: str
    boxes: tuple[Box, ...]


class Control(NamedTuple):
    """A form control: its label, its own box where it is drawn, whether it is a switch, and its value."""

    label: Text
    box: Box | None
    toggle: bool
    state: str


class Listed(NamedTuple):
    """Neighbours of one kind: their heading, if they have one, and whether they stand side by side."""

    label: Text | None
    items: tuple[Text, ...]
    across: bool


@dataclass(frozen=True)
class Facts:
    """What lies fully in a viewport; from `pairs` on only of interfaces."""

    words: tuple[Word, ...]  # the words in the order of the document
    text: str  # all that is at least partly in it, in lower case
    titles: tuple[Text, ...]  # headings of the first order
    # heading, full text up to the next heading, first paragraph; either may be None
    sections: tuple[tuple[Text, Text | None, Text | None], ...]
    terms: tuple[tuple[str, Text, Text], ...]  # name, the term as printed, its definition
    crossings: tuple[tuple[Text, Text, Text], ...]  # row header, column header, cell
    values: tuple[tuple[Text, Text], ...]  # label and value of tables of two columns
    pairs: tuple[tuple[Text, Text], ...] = ()  # label and value that stand together
    prices: tuple[tuple[Text, Text], ...] = ()  # name and price of a card
    cards: tuple[tuple[Text, Text], ...] = ()  # name of a card and its full text
    controls: tuple[Control, ...] = ()  # form controls
    buttons: tuple[Text, ...] = ()  # buttons and links
    lists: tuple[Listed, ...] = ()  # menus, rows, tiles

    @classmethod
    def of(cls, measured: dict[str, Any], scale: float) -> Facts:
        """Return the facts that `document.js` measured, where the picture has `scale` px per CSS px."""

        def box(corners: Sequence[float]) -> Box:
            x0, y0, x1, y1 = (round(corner * scale, 1) for corner in corners)
            return x0, y0, x1, y1

        def text(piece: dict[str, Any]) -> Text:
            return Text(piece["text"], tuple(map(box, piece["lines"])))

        def maybe(piece: dict[str, Any] | None) -> Text | None:
            return text(piece) if piece else None

        def labelled(name: str, other: str = "value") -> tuple[tuple[Text, Text], ...]:
            return tuple((text(each["label"]), text(each[other])) for each in measured.get(name, ()))

        return cls(
            tuple(Word(plain, box(corners), size * scale) for plain, *corners, size in measured["words"]),
            " ".join(measured["text"].lower().split()),
            tuple(map(text, measured["titles"])),
            tuple((text(s["label"]), maybe(s["all"]), maybe(s["start"])) for s in measured["sections"]),
            tuple((t["name"], text(t["label"]), text(t["meaning"])) for t in measured["terms"]),
            tuple((text(c["row"]), text(c["column"]), text(c["cell"])) for c in measured["crossings"]),
            labelled("values"),
            labelled("pairs"),
            labelled("prices"),
            labelled("cards", "all"),
            tuple(
                Control(text(c["label"]), box(c["box"]) if c["box"] else None, c["toggle"], c["state"])
                for c in measured.get("controls", ())
            ),
            tuple(map(text, measured.get("buttons", ()))),
            tuple(
                Listed(maybe(each["label"]), tuple(map(text, each["items"])), each["across"])
                for each in measured.get("lists", ())
            ),
        )


def inquire(
    rng: random.Random, facts: Facts, absent: Sequence[str], of: Mapping[str, int] = DOCUMENT
) -> tuple[Inquired, ...]:
    """At most MAX_QUESTIONS questions about a viewport.

    `absent` are headings and terms of another page; one that doesn't occur here is asked for as absent. `of`
    gives the rules, and the most questions by each.
    """
    kept: list[Inquired] = []
    for rule, most in of.items():
        questions = list(RULES[rule](rng, facts, absent))
        rng.shuffle(questions)
        by_evidence = {question.evidence: question for question in questions}
        kept += list(by_evidence.values())[:most]
    while len(kept) > MAX_QUESTIONS:
        kept.remove(rng.choice([question for question in kept if question.kind in STRUCTURE]))
    return tuple(kept)


def _ask(kind: str, text: str, *evidence: Text, answer: str | None = None) -> Inquired:
    """Return a question; its answer is the last text of its evidence, if not given."""
    answer = evidence[-1].plain if answer is None else answer
    return Inquired(kind, text, answer[:MAX_ANSWER], tuple(box for part in evidence for box in part.boxes))


def _crossings(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for row, column, cell in facts.crossings:
        yield _ask("crossing", phrase(rng, "crossing", row=row.plain, column=column.plain), row, column, cell)


def _values(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for label, value in facts.values:
        name = label.plain.strip(EDGES + " ")
        if len(name) > 1 and any(c.isalpha() for c in name):
            kind = "term" if len(value.plain.split()) > 5 else "value"
            yield _ask(kind, phrase(rng, kind, label=name), label, value)


def _terms(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    names = [name.strip(" :.,;–—") for name, _, _ in facts.terms]
    count = Counter(names)
    for name, (_, term, meaning) in zip(names, facts.terms, strict=True):
        if 2 <= len(name) <= 70 and count[name] < 2:
            yield _ask("term", phrase(rng, "term", label=name), term, meaning)


def _sections(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    count = Counter(heading.plain for heading, _, _ in facts.sections)
    for heading, whole, start in facts.sections:
        name = heading.plain
        if count[name] > 1 or sum(c.isalpha() for c in name) < 3:
            continue
        if rng.random() < 0.7:
            name = NUMBERED.sub("", name) or name
        name = name.strip(" :–—-")
        short = whole is not None and len(whole.boxes) <= MAX_LINES
        if whole is not None and short:
            yield _ask("section", phrase(rng, "section", label=name), heading, whole)
        if start is not None and (not short or (start != whole and rng.random() < 0.3)):
            yield _ask("section", rng.choice(OPENING).format(name), heading, start)


def _titles(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    if len(facts.titles) == 1:
        yield _ask("title", phrase(rng, "title"), facts.titles[0])


def _words(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    """Words and runs of two or three words of one line that stand once in the viewport."""
    for label, box in _spans(rng, facts, 24):
        if facts.text.count(label.lower()) == 1:
            yield _ask("word", phrase(rng, "word", label=label), Text(label, (box,)))


def _presences(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for label, box in _spans(rng, facts, 8):
        if facts.text.count(label.lower()) == 1:
            text = rng.choice(PRESENCE).format(label)
            yield _ask("presence", text, Text(label, (box,)), answer="yes")


def _unanswerable(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    names = [name for name in absent if name.lower() not in facts.text and any(c.isalpha() for c in name)]
    if names:
        name = NUMBERED.sub("", rng.choice(names))
        kind = rng.choice(("section", "term", "word", "presence"))
        plain = rng.choice(PRESENCE).format(name) if kind == "presence" else phrase(rng, kind, label=name)
        if name.lower() not in facts.text:
            yield _ask("unanswerable", plain, answer="not on this page")


def _global(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    yield _ask("global", phrase(rng, "global"), answer=facts.titles[0].plain if facts.titles else "")


def _named(things: Sequence[tuple[Text, T]]) -> Iterator[tuple[str, Text, T]]:
    """Things by label, where the label can be asked for and is unique."""
    count = Counter(label.plain.lower() for label, _ in things)
    for label, thing in things:
        name = label.plain.strip(EDGES + " ")
        if count[label.plain.lower()] == 1 and len(name) > 1 and any(c.isalpha() for c in name):
            yield name, label, thing


def _pairs(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for name, label, value in _named(facts.pairs + facts.values):
        yield _ask("value", phrase(rng, "value", label=name), label, value)


def _meanings(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for name, label, value in _named(facts.pairs + facts.values):
        for question in paraphrases(rng, name)[:1]:
            yield _ask("paraphrase", question, label, value)


def _controls(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for name, label, control in _named([(control.label, control) for control in facts.controls]):
        whole = Text(name, (*label.boxes, *filter(None, (control.box,))))
        kind = "switch" if control.toggle else "value"
        yield _ask(kind, phrase(rng, kind, label=name), whole, answer=control.state)


def _prices(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for name, label, price in _named(facts.prices):
        yield _ask("price", phrase(rng, "price", label=name), label, price)


def _cards(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for name, _, card in _named(facts.cards):
        yield _ask("card", phrase(rng, rng.choice(("card", "section")), label=name), card)


def _buttons(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for name, button, _ in _named([(button, button) for button in facts.buttons]):
        if len(name) > 2 and facts.text.count(name.lower()) == 1:
            yield _ask("word", rng.choice(BUTTON).format(name), button)


def _orders(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    """Yield what is first, second or last under a heading, and what stands beside an item."""
    for label, items, across in facts.lists:
        if label is not None:
            i = rng.choice((*range(min(len(items), len(ORDINALS))), -1))
            ordinal = "last" if i == -1 else ORDINALS[i]
            heading = label.plain.strip(EDGES + " ")
            yield _ask("position", rng.choice(PLACED).format(ordinal, heading), label, items[i])
        i, step = rng.randrange(1, len(items) - 1), rng.choice((-1, 1))
        name = items[i].plain.strip(EDGES + " ")
        if len(name.split()) <= 5 and facts.text.count(name.lower()) == 1:
            side = {(False, -1): "above", (False, 1): "below", (True, -1): "left", (True, 1): "right"}
            wording = phrase(rng, side[across, step], label=name)
            yield _ask("position", wording, items[i], items[i + step])


def _counts(rng: random.Random, facts: Facts, absent: Sequence[str]) -> Iterator[Inquired]:
    for label, items, _ in facts.lists:
        if label is not None:
            wording = rng.choice(COUNTED).format(label.plain.strip(EDGES + " "))
            yield _ask("count", wording, label, *items, answer=str(len(items)))


RULES: dict[str, Callable[[random.Random, Facts, Sequence[str]], Iterator[Inquired]]] = {
    "crossing": _crossings,
    "term": _terms,
    "section": _sections,
    "value": _values,
    "word": _words,
    "title": _titles,
    "presence": _presences,
    "unanswerable": _unanswerable,
    "global": _global,
    "pair": _pairs,
    "meaning": _meanings,
    "control": _controls,
    "price": _prices,
    "card": _cards,
    "button": _buttons,
    "order": _orders,
    "count": _counts,
}
"""The rules: all the questions that the facts allow."""


def _spans(rng: random.Random, facts: Facts, count: int) -> Iterator[tuple[str, Box]]:
    """Some words, and runs of two or three words that follow each other on a line, with their boxes."""
    for _ in range(min(count, len(facts.words))):
        start = rng.randrange(len(facts.words))
        length = rng.choice((1, 1, 1, 2, 3))
        run = facts.words[start : start + length]
        x0, y0, x1, y1 = zip(*(word.box for word in run), strict=True)
        lefts, rights = [word.box[0] for word in run[1:]], [word.box[2] for word in run]
        gaps = [left - right for left, right in zip(lefts, rights, strict=False)]
        if (
            run[0].size < SMALLEST
            or max(y0) - min(y0) > 2
            or any(not 0 <= gap <= 0.7 * run[0].size for gap in gaps)
        ):
            continue
        label = " ".join(" ".join(word.text for word in run).split()).strip(EDGES + " ")
        if any(mark in label for mark in (". ", ", ", ") ", "; ", ": ")):
            continue
        if len(label) >= 4 and sum(c.isalpha() for c in label) >= 3 and len(label) <= 50:
            yield label, (min(x0), min(y0), max(x1), max(y1))
