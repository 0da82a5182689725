"""Questions about windows of browser-rendered pages: what is asked, and in which cells the answer is spelled.

Only questions whose answer is printed in one line are asked, in print that can be read.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerFast

from arr_coc_lab.teaching.page import OpenPage, opened
from arr_coc_lab.world.browser.cache import CachedPage, CachedPages
from arr_coc_lab.world.browser.chromium import Box, Word
from arr_coc_lab.world.browser.page import Inquired
from arr_coc_lab.world.questions import Question
from making.bundled import CELL, patchify
from making.language import collate
from making.packing import IGNORED, pack
from making.printed import (
    END,
    FIRST_BYTE,
    NOTHING,
    PLACES,
    SPACE,
    UNSURE,
    Labels,
    labels,
    letters,
    piece_tokens,
    pieces,
)
from making.windows import cut, placed

NO_PICTURE = Image.new("RGB", (1, 1))
"""In place of a page's picture where words alone are read."""
KINDS = ("value", "crossing", "card", "price", "title", "chart", "implied")
"""Kinds of questions whose answer is mostly printed as it is asked for."""
ENDS = (chr(SPACE), chr(END))
"""What can stand behind a word in a `Line`."""
LONGEST = 32
"""Pieces of the longest answer."""
CELLS = 640
"""Cells of a batch of windows with pixels."""
PRINT = (20.0, 40.0)
"""Font sizes in px to which the smallest print of a question is scaled."""


class Inquiry(NamedTuple):
    """A question about a window.

    `tokens` are those of its answer, without the end; `cells` are (y, x) of each piece, and of the end.
    """

    kind: str
    text: str
    tokens: list[int]
    cells: list[tuple[int, int]]


class Line(NamedTuple):
    """A run of words: its pieces as characters of a string, their cells, and the boxes of their letters."""

    text: str
    cells: list[tuple[int, int]]
    boxes: list[Box]


def lines_of(words: Sequence[Word]) -> list[Line]:
    """The runs of words, spelled; the last piece of each is the end."""
    lines: dict[int, Line] = {}
    for letter in letters(words):
        line = lines.setdefault(letter.line, Line("", [], []))
        x0, y0, x1, y1 = letter.box
        count = len(letter.pieces)
        line.cells.extend([(int((y0 + y1) / 2 // CELL), int((x0 + x1) / 2 // CELL))] * count)
        line.boxes.extend([letter.box] * count)
        lines[letter.line] = line._replace(text=line.text + "".join(map(chr, letter.pieces)))
    return list(lines.values())


def inquiries(questions: Sequence[Inquired], words: Sequence[Word], marks: Labels) -> Iterator[Inquiry]:
    """The questions that can be asked about a window; boxes and words in px of the window."""
    _, height, width = marks.counts.shape
    lines = lines_of(words)
    for question in questions:
        wanted = "".join(map(chr, pieces(question.answer)))
        if question.kind not in KINDS or not 0 < len(wanted) <= LONGEST:
            continue
        spots = [spot for box in question.evidence for spot in _spots(wanted, lines, box)]
        # Evidence comes label first, value last.
        for spot in reversed(spots):
            if all(0 <= y < height and 0 <= x < width and marks.places[0, y, x] != UNSURE for y, x in spot):
                yield Inquiry(question.kind, question.text, piece_tokens(question.answer), spot)
                break


def _spots(wanted: str, lines: Sequence[Line], box: Box) -> Iterator[list[tuple[int, int]]]:
    """The cells of a text's pieces, and of what ends it, wherever it is printed in a box as whole words."""
    x0, y0, x1, y1 = box
    for line in lines:
        start = line.text.find(wanted)
        while start >= 0:
            stop = start + len(wanted)
            whole = line.text[stop] in ENDS and (start == 0 or line.text[start - 1] == ENDS[0])
            a, b = line.boxes[start], line.boxes[stop - 1]
            if whole and x0 - 2 <= a[0] and b[2] <= x1 + 2 and y0 - 2 <= (a[1] + a[3]) / 2 <= y1 + 2:
                yield line.cells[start : stop + 1]
            start = line.text.find(wanted, start + 1)


def least_print(question: Inquired, words: Sequence[Word]) -> float:
    """Font size in px of the smallest word in a question's evidence; 0 where there is none."""
    sizes = [
        word.size
        for word in words
        for x0, y0, x1, y1 in question.evidence
        if x0 - 2 <= word.box[0] and word.box[2] <= x1 + 2 and y0 <= middle(word) <= y1
    ]
    return min(sizes, default=0.0)


def enciphered(page: OpenPage, rng: random.Random) -> OpenPage:
    """A page with other letters and digits, the same ones for each throughout; questions and answers follow.

    Only what the evidence of a question prints is changed in its text: the wording stays.
    """
    small = dict(zip(string.ascii_lowercase, rng.sample(string.ascii_lowercase, 26), strict=True))
    other = small | {a.upper(): b.upper() for a, b in small.items()}
    other |= dict(zip(string.digits, rng.sample(string.digits, 10), strict=True))
    table = str.maketrans(other)
    changed = []
    for q in page.questions:
        printed = {
            part.lower()
            for w in page.words
            if any(b[0] - 2 <= w.box[0] <= b[2] and b[1] <= middle(w) <= b[3] for b in q.evidence)
            for part in re.findall(r"\w+", w.text)
        }

        def swap(match: re.Match[str], printed: set[str] = printed) -> str:
            return match[0].translate(table) if match[0].lower() in printed else match[0]

        changed.append(Inquired(q.kind, re.sub(r"\w+", swap, q.text), q.answer.translate(table), q.evidence))
    words = tuple(word._replace(text=word.text.translate(table)) for word in page.words)
    return OpenPage(page.image, words, tuple(changed))


class AskedWindows(Dataset[dict[str, Any]]):
    """Batch i: windows of rendered pages with packed questions, as pixels or as perfect eyes see them.

    Args:
        tokenizer: that spells what it does not know.
        folder: of the cache.
        split: of the pages.
        first: number of the first batch.
        last: number behind the last one.
        batch: windows a batch, without pixels.
        pixels: give pictures instead of perfect eyes' words.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        folder: Path,
        split: str,
        first: int,
        last: int,
        batch: int = 8,
        pixels: bool = False,
    ) -> None:
        self.tokenizer, self.pages, self.first, self.last = tokenizer, CachedPages(folder, split), first, last
        self.batch, self.pixels = batch, pixels

    def __len__(self) -> int:
        return max(0, self.last - self.first)

    def __getitem__(self, index: int) -> dict[str, Any]:
        step = self.first + index
        rng = random.Random(1_000_003 * step + 17)
        # Nearly empty windows come first and stay in the mix, as in `making.language`.
        easy = not self.pixels and rng.random() < max(0.3, 1 - step / (0.3 * self.last))
        size = (rng.randint(3, 7), rng.randint(8, 18)) if easy else (rng.randint(7, 24), rng.randint(10, 32))
        count = max(1, CELLS // (size[0] * size[1])) if self.pixels else self.batch
        rows: list[dict[str, Any]] = []
        while len(rows) < count:
            row = self.window(self.pages[rng.randrange(len(self.pages))], rng, size)
            if row is not None:
                rows.append(row)
        batch: dict[str, Any] = collate(
            [r["packed"] for r in rows], self.tokenizer.pad_token_id, [r["weights"] for r in rows]
        )
        batch |= {"families": [r["families"] for r in rows], "pointers": [r["pointers"] for r in rows]}
        for name in ("places", "counts", "kept"):
            batch[name] = torch.cat([r[name] for r in rows])
        if self.pixels:
            batch["pixels"] = torch.cat([r["pixels"] for r in rows])
            batch["grid"] = torch.tensor([[1, 2 * size[0], 2 * size[1]]] * len(rows))
        return batch

    def window(self, cached: CachedPage, rng: random.Random, size: tuple[int, int]) -> dict[str, Any] | None:
        """A window of a page with questions, or None where this one has none."""
        page = opened(cached) if self.pixels else OpenPage(NO_PICTURE, cached.words, cached.questions)
        options = [q for q in page.questions if q.kind in KINDS and q.evidence]
        if not options or len(page.words) < 3:
            return None
        focus = rng.choice(options)
        least = least_print(focus, page.words)
        if least == 0:
            return None
        scale = PRINT[0] * (PRINT[1] / PRINT[0]) ** rng.random() / least
        if not self.pixels and rng.random() < 0.7:
            page = enciphered(page, rng)
        h, w = size
        x0, y0 = (min(box[i] for box in focus.evidence) for i in (0, 1))
        x1, y1 = (max(box[i] for box in focus.evidence) for i in (2, 3))
        room = (w * CELL / scale - (x1 - x0), h * CELL / scale - (y1 - y0))
        if min(room) < 0:
            return None
        left, top = (max(0.0, a - r * rng.uniform(0.02, 0.98)) for a, r in zip((x0, y0), room, strict=True))
        if self.pixels:
            view = cut(
                page, (left, top, scale), (w * CELL, h * CELL), rng if rng.random() < 0.5 else None, rng
            )
            words = view.words
        else:
            visible = [w for w in page.words if top <= middle(w) <= top + h * CELL / scale]
            words = [placed(word, left, top, scale) for word in visible]
        marks = labels(words, h, w)
        chosen = list(inquiries([moved(q, left, top, scale) for q in page.questions], words, marks))
        if not chosen:
            return None
        rng.shuffle(chosen)
        row = self.pack(chosen[:10], marks, rng)
        return row | {"pixels": patchify(view.pixels)} if self.pixels else row

    def pack(self, chosen: list[Inquiry], marks: Labels, rng: random.Random) -> dict[str, Any]:
        """Questions packed behind cells of a window: with pixels all, else the printed and some others."""
        _, h, w = marks.counts.shape
        places = torch.from_numpy(marks.places).flatten(1).T.long()  # (H W, PLACES)
        counts = torch.from_numpy(marks.counts).flatten(1).T.long()
        printed = places[:, 0] < NOTHING
        printed |= (places >= 0).any(1)
        kept = torch.ones(h * w, dtype=torch.bool) if self.pixels else printed.clone()
        blank = (~printed).nonzero()[:, 0]
        some = blank[torch.tensor(rng.sample(range(len(blank)), min(len(blank), 12)), dtype=torch.long)]
        kept[some] = True
        numbers = torch.full((h * w,), -1)
        numbers[kept] = torch.arange(int(kept.sum()))
        at = kept.nonzero()[:, 0]
        questions = [Question(q.text, "", q.kind, (), ()) for q in chosen]
        packed = pack(
            self.tokenizer,
            torch.stack([at // w, at % w], 1),
            (h, w),
            questions,
            answers=[q.tokens for q in chosen],
        )
        packed.hints[packed.visual] = first_piece(places[at])
        weights = torch.ones(len(at))
        if not self.pixels and len(some):
            weights[~printed[at]] = max(1.0, len(blank) / len(some)) ** rng.random()
        pointers = [[int(numbers[y * w + x]) for y, x in q.cells] for q in chosen]
        return {
            "packed": packed,
            "weights": weights,
            "families": [q.kind for q in chosen],
            "pointers": pointers,
            "places": places if self.pixels else places[at],
            "counts": counts if self.pixels else counts[at],
            "kept": kept,
        }


def first_piece(places: Tensor) -> Tensor:
    """The token of the piece at the first place of each cell [M, PLACES], or IGNORED where it has none."""
    there = places >= 0
    first = torch.where(there, torch.arange(PLACES), PLACES).argmin(1)
    own = places.gather(1, first[:, None])[:, 0]
    return torch.where(there.any(1) & (own < END), own + FIRST_BYTE, IGNORED)


def middle(word: Word) -> float:
    """The y of a word's middle."""
    return (word.box[1] + word.box[3]) / 2


def moved(question: Inquired, left: float, top: float, scale: float) -> Inquired:
    """A question with its evidence in px of a window."""
    boxes = tuple(
        ((x0 - left) * scale, (y0 - top) * scale, (x1 - left) * scale, (y1 - top) * scale)
        for x0, y0, x1, y1 in question.evidence
    )
    return replace(question, evidence=boxes)
