"""Dense labels of every cell of a drawn page, for training the bundled model's vision tower.

Every cell of a text knows the text's label; a piece of its value is known where it is printed.
`cell_targets(page) -> words [R, H, W]`: for each role the index of the cell's word in `ROLE_WORDS[role]`,
NONE where the role does not hold, IGNORE where the cell is cut too finely to say. `glyph_targets(page)`: the
character under each patch, and its place in its value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from arr_coc.data.evidence import evidence_cells
from arr_coc_lab.world import Fact, Page, Question, Thing
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.vocabulary import ALPHABET
from making.bundled import CELL, PATCH
from making.words import COLUMN_BUCKETS, ROLE_WORDS, ROLES, SIZE_BUCKETS

NONE, IGNORE = -1, -2
GLYPHS = ALPHABET + "abcdefghijklmnopqrstuvwxyzOI01"

_INDEX = {role: {word: i for i, word in enumerate(words)} for role, words in ROLE_WORDS.items()}
_GLYPH = {c: i for i, c in enumerate(GLYPHS)}


def evidence_mask(boxes: Sequence[Rect], height: int, width: int) -> np.ndarray:
    """Evidence cells of boxes in px of a page of height x width cells: bool [height, width]."""
    return evidence_cells(boxes, (height, width), (width * CELL, height * CELL)).numpy()


def size_bucket(size: int) -> int:
    """Diameter in px -> one of eight buckets, evenly spaced in the logarithm from 36 to 128 px."""
    return min(SIZE_BUCKETS - 1, max(0, int(SIZE_BUCKETS * math.log(size / 36) / math.log(128 / 36))))


def fact_words(fact: Fact, pieces: Iterable[int] = ()) -> dict[str, int]:
    """Role -> word index, for a cell of a text that shows the given pieces of its value (0 the first)."""
    words = {"label": _INDEX["label"][" " + fact.label]}
    return words | {f"value{i + 1}": _INDEX[f"value{i + 1}"][fact.value[i]] for i in pieces}


def thing_words(thing: Thing, width: int) -> dict[str, int]:
    """Role -> word index, for a cell of a shape (its middle cell also has the role `centre`)."""
    return {
        "colour": _INDEX["colour"][thing.colour],
        "shape": _INDEX["shape"][thing.shape],
        "size": size_bucket(thing.size),
        "column": min(COLUMN_BUCKETS - 1, thing.x * COLUMN_BUCKETS // width),
    }


def clues(question: Question, things: Iterable[Thing], width: int) -> list[tuple[str, str]]:
    """What a comparison has to look up: (mention, word of its size or column).

    Only for mentions after `larger` or `left`: before, it is not known which of the two is
    meant. Empty for the other families. `width` of the page in px.
    """
    role = {"larger": "size", "left": "column"}.get(question.family)
    if role is None:
        return []
    comparison = min(i for i in (question.text.find(w) for w in ("larger", "bigger", "left")) if i >= 0)
    pairs = []
    for thing in things:
        mention = f" {thing.colour} {thing.shape}"
        if question.text.find(mention) > comparison:
            pairs.append((mention, ROLE_WORDS[role][thing_words(thing, width)[role]]))
    return pairs


def _cells(box: Rect, step: int, height: int, width: int) -> list[tuple[int, int, int, int]]:
    """Grid squares that a box touches: (y, x, overlap height, overlap width) in px."""
    x0, y0, x1, y1 = (max(0, v) for v in box)
    return [
        (y, x, min(y1, (y + 1) * step) - max(y0, y * step), min(x1, (x + 1) * step) - max(x0, x * step))
        for y in range(y0 // step, min(height, (y1 - 1) // step + 1))
        for x in range(x0 // step, min(width, (x1 - 1) // step + 1))
    ]


def cell_targets(page: Page) -> np.ndarray:
    """Words of the cells of a page (sides multiples of 32 px): int16 [R, H, W] in the order of `ROLES`."""
    w, h = page.image.width // CELL, page.image.height // CELL
    words = np.full((len(ROLES), h, w), NONE, dtype=np.int16)
    best = np.zeros((h, w))
    unsure = np.zeros((h, w), dtype=bool)

    def claim(y: int, x: int, area: float, sure: bool, cell: dict[str, int]) -> None:
        if area <= best[y, x]:
            unsure[y, x] |= area > 0.5 * best[y, x]
            return
        unsure[y, x] = not sure or best[y, x] > 0.5 * area
        best[y, x] = area
        words[:, y, x] = [cell.get(role, NONE) for role in ROLES]

    for fact in page.facts:
        pieces: dict[tuple[int, int], list[int]] = {}
        for i, box in enumerate(fact.spans):
            for y, x, _, ow in _cells(box, CELL, h, w):
                if ow >= min(6, 0.45 * (box[2] - box[0])):
                    pieces.setdefault((y, x), []).append(i)
        for box in fact.boxes:
            for y, x, oh, ow in _cells(box, CELL, h, w):
                sure = ow >= 6 and oh >= min(14, 0.45 * (box[3] - box[1]))
                claim(y, x, oh * ow, sure, fact_words(fact, pieces.get((y, x), ())))
    for thing in page.things:
        cell = thing_words(thing, page.image.width)
        x0, y0, x1, y1 = thing.box
        cut = thing.size // 10
        for y, x, oh, ow in _cells((x0 + cut, y0 + cut, x1 - cut, y1 - cut), CELL, h, w):
            claim(y, x, oh * ow, oh * ow >= 0.3 * CELL * CELL, cell)
        cy, cx = thing.y // CELL, thing.x // CELL
        if 0 <= cy < h and 0 <= cx < w:
            words[:, cy, cx] = [({"centre": 0} | cell).get(role, NONE) for role in ROLES]
            unsure[cy, cx], best[cy, cx] = False, 1e9
    words[:, unsure] = IGNORE
    return words


def glyph_targets(page: Page) -> tuple[np.ndarray, np.ndarray]:
    """What is printed under each 16-px patch of a page whose sides are multiples of 32 px.

    Returns:
        glyphs: int16 [2H, 2W], the character (index into GLYPHS) or NONE.
        places: int16 [2H, 2W], 1 to 5 for the characters of a code, 0 for other characters, NONE without one.
    """
    h, w = page.image.height // PATCH, page.image.width // PATCH
    place = {box: i for f in page.facts if len(f.value[0]) == 1 for i, box in enumerate(f.spans, start=1)}
    glyphs, places = np.full((2, h, w), NONE, dtype=np.int16)
    most = np.zeros((h, w))
    for char, box in page.glyphs:
        for y, x, oh, ow in _cells(box, PATCH, h, w):
            if char in _GLYPH and oh * ow > most[y, x] and oh >= 5 and ow >= 4:
                most[y, x], glyphs[y, x], places[y, x] = oh * ow, _GLYPH[char], place.get(box, 0)
    return glyphs, places
