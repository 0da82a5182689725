"""A page while it is written: its HTML, its marked pieces, and the questions about them.

    sheet.text("Total"), sheet.text("12.50 EUR")     pieces: strings of HTML that know their own number
    sheet.field(label, value)                        every kind of question about a label and its value

Where each piece stands is measured after the browser has laid the page out (`chromium`): a page type names
the pieces that answer a question and computes no coordinate.
"""

from __future__ import annotations

import html
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from arr_coc.guide.lexicon import stems, synonyms
from arr_coc_lab.world.browser.phrases import paraphrases, phrase, unlisted
from arr_coc_lab.world.browser.style import PageStyle
from arr_coc_lab.world.browser.vocabulary import Vocabulary

MARK = "data-piece"
"""The HTML attribute that holds a piece's number."""
TAG = re.compile(r"<[^<>]*>")


class Piece(str):
    """Marked HTML: a string that can stand in any other HTML, with its number and its plain text.

    Attributes:
        number: the value of its MARK.
        plain: its text without markup; "" for a block.
    """

    number: int
    plain: str


class Inquiry(NamedTuple):
    """A question about a sheet before layout; its evidence are numbers of pieces.

    `renamed`: its label was paraphrased by rule, so it may mean another label of the page.
    """

    kind: str
    text: str
    answer: str
    pieces: tuple[int, ...]
    renamed: bool = False


@dataclass
class Sheet:
    """A page being written.

    Attributes:
        rng: every choice comes from it.
        words: the vocabulary of the page's split.
        style: size, colours and fonts.
        inquiries: the questions so far.
        plain: the text of every piece by its number.
        things: pieces that are drawn objects, each with its name (`icon_sets.CALLED`, or that of a shape).
    """

    rng: random.Random
    words: Vocabulary
    style: PageStyle

    def __post_init__(self) -> None:
        self.inquiries: list[Inquiry] = []
        self.plain: dict[int, str] = {}
        self.things: list[tuple[str, Piece]] = []

    def text(self, plain: str, tag: str = "span", attributes: str = "") -> Piece:
        """Text as a piece; its evidence is the boxes of its lines. `attributes`: further HTML attributes."""
        return self._piece(plain, html.escape(plain), tag, attributes)

    def block(self, inner: str, tag: str = "div", attributes: str = "") -> Piece:
        """HTML as a piece whose evidence is the box of the whole element: a picture, a bar, a switch."""
        return self._piece("", inner, tag, f"{attributes} data-block")

    def rich(self, inner: str) -> Piece:
        """HTML of a line of text as a piece; its evidence is the boxes of its lines."""
        return self._piece(html.unescape(TAG.sub("", inner)).strip(), inner, "span", "")

    def mark(self, plain: str) -> Piece:
        """Return a piece that is only its MARK, for use among an element's attributes, with its text
        `plain`.
        """
        return self._numbered(plain, "{} data-block")

    def _piece(self, plain: str, inner: str, tag: str, attributes: str) -> Piece:
        return self._numbered(plain, f"<{tag} {{}} {attributes}>", f"{inner}</{tag}>")

    def _numbered(self, plain: str, start: str, rest: str = "") -> Piece:
        """Return a new piece: `start` with its MARK in the place of {}, and the rest."""
        number = len(self.plain) + 1
        piece = Piece(start.replace("{}", f'{MARK}="{number}"', 1) + rest)
        piece.number, piece.plain = number, plain
        self.plain[number] = plain
        return piece

    def ask(self, kind: str, text: str, answer: str, *evidence: Piece, renamed: bool = False) -> None:
        """Add a question of a kind (see `phrases.KINDS`) whose answer needs these pieces; see `Inquiry`."""
        numbers = tuple(piece.number for piece in evidence)
        self.inquiries.append(Inquiry(kind, text, answer, numbers, renamed))

    def phrase(self, kind: str, sort: str = "", **parts: str) -> str:
        """Return a question in a wording of the page's split; see `phrases.phrase`."""
        return phrase(self.rng, kind, sort, split=self.words.split, **parts)

    def field(self, label: Piece, value: Piece, *context: Piece, kind: str = "value", sort: str = "") -> None:
        """Ask for the value of a label.

        `context` are further pieces that the question names or needs (a card's or a section's heading). The
        `sort` of the value ("price" of what is for sale, "amount" of any other sum, "date", "name", "place",
        ...) allows questions that imply the label ("how much is ...").
        """
        name = label.plain.rstrip(" :")
        within = context[0].plain if context else ""
        text = self.phrase(kind, sort=sort, label=name, within=within)
        self.ask(kind, text, value.plain, *context, label, value)
        self.paraphrase(label, value, *context, sort=sort)

    def paraphrase(self, label: Piece, value: Piece, *context: Piece, sort: str = "") -> None:
        """Ask for the value of a label in other words, if some are known; see `field`."""
        name, within = label.plain.rstrip(" :"), context[0].plain if context else ""
        for text in paraphrases(self.rng, name, within, sort, split=self.words.split):
            self.ask("paraphrase", text, value.plain, *context, label, value, renamed=True)
        for text in unlisted(name) if self.words.split == "test" and not context else ():
            self.ask("paraphrase-unlisted", text, value.plain, label, value, renamed=True)

    def ambiguous(self, inquiry: Inquiry) -> bool:
        """Return whether a paraphrase may mean another label of the page: it names one, or one means the
        same.
        """
        if not inquiry.renamed:
            return False
        label = self.plain[inquiry.pieces[-2]].rstrip(" :")
        others = {stems(text) for number, text in self.plain.items() if number not in inquiry.pieces}
        named = any(other and f" {other} " in f" {stems(inquiry.text)} " for other in others)
        return named or not others.isdisjoint(map(stems, synonyms(label)))

    def crossing(self, row: Piece, column: Piece, cell: Piece, *context: Piece) -> None:
        """Ask for the cell of a table where a row and a column meet."""
        text = self.phrase("crossing", row=row.plain, column=column.plain)
        self.ask("crossing", text, cell.plain, *context, row, column, cell)

    def choose(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both possible."""
        return self.rng.randint(low, high)

    def one(self, options: Sequence[str]) -> str:
        """One of some strings."""
        return self.rng.choice(options)

    def chance(self, share: float) -> bool:
        """True with a probability."""
        return self.rng.random() < share
