"""Dense labels of browser-rendered text: what every cell and every half patch of a window shows.

A word is spelled in pieces, one byte of UTF-8 each, all of them tokens of the bundled model: any text can be
said without a new token. A cell says the pieces of the characters whose centres lie in it, each turned by the
place it has in its word; after a word's last piece comes a space, or the end of the answer where the run of
words ends. A word of one or two characters is read together with the word behind it ("5 kg"), so that no cell
has to say two pieces at one place. Places are counted to twelve and then from one again: a cell shows fewer
characters than that. Two further roles say how many rounds went before, and which word of its run it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from arr_coc_lab.world.browser.chromium import Word
from making.bundled import CELL, PATCH

PLACES, ROUNDS, ORDERS = 12, 3, 6
"""Places that a cell can name, how often a word can go through them, and words of a run."""
RANKS = 16
"""Places that a throw-away head names, counted on."""
FIRST_BYTE, END = 7, 256
"""The token of the first byte in `BYTES`; the piece after the bytes is the end of an answer."""
LEAST, MOST = 17.0, 72.0
"""Font sizes in px between which print is read."""
CHARACTERS = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;-–—/_$€£¥°%?!=@+()'\"#*&[]{}<>~|\\•·"
    "éäąłöóęüåśżçãèíáñćúâôź"
)
"""Characters that the throw-away heads name; the last class is any other."""
WIDEST = 0.8
"""Of the spaces inside a run, in font sizes: that of a typewriter, with its letters spaced."""
CUT = -3.0
"""x before which the beginning of a word is out of sight."""
NOTHING, UNSURE = -1, -2
"""Labels of a cell or half patch: nothing is printed there; it can't be said."""


def _byte_order() -> dict[int, int]:
    """Byte -> its index among the tokens of a byte-level alphabet: printable ones first."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return {byte: i for i, byte in enumerate([*printable, *sorted(set(range(256)) - set(printable))])}


BYTES = _byte_order()


def pieces(text: str) -> list[int]:
    """The pieces of a text: for each byte its index in `BYTES`."""
    return [BYTES[byte] for byte in text.encode()]


SPACE = pieces(" ")[0]


def piece_tokens(text: str) -> list[int]:
    """The token of every piece of a text."""
    return [FIRST_BYTE + piece for piece in pieces(text)]


class Letter(NamedTuple):
    """A character of a word: its box in px, its place in the word, the word's number in its run.

    `starts` are the x at which its word and its run begin: where they are out of sight, so is the place.
    """

    text: str
    box: tuple[float, float, float, float]
    pieces: tuple[int, ...]
    place: int
    order: int
    line: int
    size: float
    starts: tuple[float, float]


def runs(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Words in one line with no more than a space between them."""
    run: list[Word] = []
    for word in words:
        if run:
            last = run[-1]
            near = -1.0 <= word.box[0] - last.box[2] <= WIDEST * word.size
            level = abs(sum(word.box[1::2]) - sum(last.box[1::2])) < 0.6 * word.size
            if not (near and level):
                yield run
                run = []
        run.append(word)
    if run:
        yield run


def letters(words: Sequence[Word]) -> Iterator[Letter]:
    """The characters of words, with their pieces; the last one of a word also has what comes after it."""
    for line, run in enumerate(runs(words)):
        place, order, joined, start = 0, 0, False, 0.0
        for number, word in enumerate(run):
            if not joined:
                place, order, start = 0, order + (number > 0), word.box[0]
            joined = not joined and len(word.text) <= 2
            edges = _edges(word)
            for i, text in enumerate(word.text):
                own = pieces(text)
                if i + 1 == len(word.text):
                    own.append(END if number + 1 == len(run) else SPACE)
                box = (edges[i], word.box[1], edges[i + 1], word.box[3])
                starts = (start, run[0].box[0])
                yield Letter(text, box, tuple(own), place, order, line, word.size, starts)
                place += len(own)


def _edges(word: Word) -> Sequence[float]:
    """The ends of a word's characters; all equally wide where they were not measured."""
    count = len(word.text)
    if len(word.edges) == count + 1:
        return word.edges
    x0, _, x1, _ = word.box
    return [x0 + (x1 - x0) * i / count for i in range(count + 1)]


class Labels(NamedTuple):
    """What a window of H x W cells shows.

    `places` int16 [PLACES, H, W]: the piece at each place, NOTHING or UNSURE; `counts` int16 [2, H, W]: how
    many rounds went before, and which word of its run it is; `halves` and `ranks` int16 [2H, 4W]: the
    character under each half patch, and its place.
    """

    places: np.ndarray
    counts: np.ndarray
    halves: np.ndarray
    ranks: np.ndarray


def labels(words: Sequence[Word], height: int, width: int) -> Labels:
    """The labels of a window of height x width cells, on which words stand at px of the window."""
    places = np.full((PLACES, height, width), NOTHING, np.int16)
    counts = np.full((2, height, width), NOTHING, np.int16)
    owner = np.full((height, width), -1)
    unsure = np.zeros((height, width), bool)
    halves = np.full((2 * height, 4 * width), NOTHING, np.int16)
    ranks = halves.copy()
    for letter in letters(words):
        x0, y0, x1, y1 = letter.box
        _under(halves, ranks, letter)
        y, x = int((y0 + y1) / 2 // CELL), int((x0 + x1) / 2 // CELL)
        if not (0 <= y < height and 0 <= x < width):
            continue
        last = letter.place + len(letter.pieces)
        readable = LEAST <= letter.size <= MOST and last <= PLACES * ROUNDS and letter.starts[0] >= CUT
        if not readable or owner[y, x] not in (-1, letter.line):
            unsure[y, x] = True
        if not readable:
            continue
        owner[y, x] = letter.line
        if counts[0, y, x] == NOTHING:
            counts[0, y, x] = letter.place // PLACES
        counts[1, y, x] = min(ORDERS - 1, letter.order) if letter.starts[1] >= CUT else UNSURE
        for place, piece in enumerate(letter.pieces, start=letter.place):
            before = places[place % PLACES, y, x]
            if piece == SPACE and before != NOTHING:
                continue  # that a word ends is also seen from the next one's beginning
            unsure[y, x] |= before not in (NOTHING, SPACE)
            places[place % PLACES, y, x] = piece
    places[:, unsure] = UNSURE
    counts[:, unsure] = UNSURE
    return Labels(places, counts, halves, ranks)


def _under(halves: np.ndarray, ranks: np.ndarray, letter: Letter) -> None:
    """Mark the half patches whose centres a character's body covers."""
    x0, y0, x1, y1 = letter.box
    middle, reach = (y0 + y1) / 2, 0.36 * letter.size
    rows = slice(max(0, round((middle - reach) / PATCH)), max(0, round((middle + reach) / PATCH)))
    columns = slice(max(0, round(2 * x0 / PATCH)), max(0, round(2 * x1 / PATCH)))
    sure = LEAST <= letter.size <= MOST
    number = CHARACTERS.find(letter.text)
    halves[rows, columns] = (number if number >= 0 else len(CHARACTERS)) if sure else UNSURE
    sure &= letter.starts[0] >= CUT
    ranks[rows, columns] = min(RANKS - 1, letter.place) if sure else UNSURE
