"""The head of relevance "ocr": a small transformer that scores which lines of print a question needs.

    facts = line_facts(lines, size)                               float [L, FACTS], once per picture
    head(vectors, facts, boxes, questions, matches, words)        logits [Q, L, 2], presence [Q]

It reads the lines' text, meaning and layout. Attention between two lines is biased by how they lie to one
another, so that it learns "right of", "below" and "in this column and that row", as the guide's head does for
places.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.choose.boxes import Box
from arr_coc.guide.lexicon import STOP_WORDS, answers, expand, stem
from arr_coc.guide.question import split_words

SENTENCE_WIDTH = 384  # of the sentence vectors (all-MiniLM-L6-v2)
FACTS = 20  # numbers that tell a line's place, size and kind of text
MATCHES = 7  # numbers that tell how a line fits the question's words
PAIR = 10  # numbers that tell how two lines lie to one another
WIDTH, HEADS, LAYERS = 128, 4, 3
HASHED = 4096  # rows of the table of a question's words
MAX_LINES = 320  # of a picture that are judged: those that fit the question best, and lines beside them


class PrintedLine(NamedTuple):
    """A line of print as an OCR reads it."""

    text: str
    box: Box  # (x0, y0, x1, y1) in px of the picture


def line_facts(lines: Sequence[PrintedLine], size: tuple[int, int]) -> Tensor:
    """Return place, size and kind of text of each line, float [L, FACTS]; `size` is the picture's (height,
    width) in px.
    """
    height, width = size
    heights = sorted(line.box[3] - line.box[1] for line in lines) or [1.0]
    usual = max(1.0, heights[len(heights) // 2])
    rows = []
    for text, (x0, y0, x1, y1) in lines:
        letters = max(1, len(text))
        digits = sum(c.isdigit() for c in text) / letters
        upper = sum(c.isupper() for c in text) / letters
        words = text.split()
        rows.append(
            (
                x0 / width, y0 / height, x1 / width, y1 / height,
                math.exp(-x0 / usual / 6), math.exp(-y0 / usual / 6),
                math.exp(-(width - x1) / usual / 6), math.exp(-(height - y1) / usual / 6),
                math.log(max(1.0, y1 - y0) / usual), math.log(max(1.0, x1 - x0) / usual) / 3,
                digits, upper, min(1.0, len(words) / 8), min(1.0, letters / 40),
                float(text.rstrip().endswith((":", "："))), float(text.rstrip().endswith(("...", "…"))),
                float(bool(re.search(r"[$€£¥%]", text))), float(bool(re.search(r"\d[:./-]\d", text))),
                float(bool(words) and words[0][:1].isupper()), float("@" in text or "/" in text),
            )
        )  # fmt: skip
    return torch.tensor(rows, dtype=torch.float32).view(-1, FACTS)


@lru_cache(maxsize=200_000)
def _stems(text: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in split_words(text))


def line_matches(question: str, lines: Sequence[PrintedLine], cosines: Tensor) -> Tensor:
    """Return how well each line fits the words of a question, float [L, MATCHES].

    `cosines` [L] compare the sentence vectors of the question and the lines.
    """
    words = split_words(question)
    content = {stem(word) for word in words if word not in STOP_WORDS}
    listed = {stem(word) for word, _ in (*expand(words), *answers(words))} - content
    held = [set(_stems(line.text)) for line in lines]
    count: dict[str, int] = {}
    for one in held:
        for key in one:
            count[key] = count.get(key, 0) + 1
    weight = {key: 1.0 / math.sqrt(count.get(key, 0) or 1) for key in content | listed}
    total = sum(weight[key] for key in content) or 1.0
    rows = []
    for one in held:
        own = [key for key in one if key in content]
        other = [key for key in one if key in listed]
        part = sum(weight[key] for key in own) / total
        rows.append((part, len(own) / max(1, len(one)), min(1.0, sum(weight[key] for key in other)),
                     len(other) / max(1, len(one)), float(bool(own) and len(own) == len(one))))  # fmt: skip
    spread = cosines.std(unbiased=False).clamp_min(0.02) if len(cosines) else cosines.new_tensor(1.0)
    score = (cosines - cosines.mean()) / spread if len(cosines) else cosines
    own_part = torch.tensor(rows, dtype=torch.float32).view(-1, MATCHES - 2)
    return torch.cat((cosines[:, None], score[:, None] / 3, own_part), 1)


def likeliest(matches: Tensor) -> Tensor:
    """Return the indices of the MAX_LINES lines that fit a question best, or lie beside such; ascending.

    `matches` [L, MATCHES] come from `line_matches`, with L above MAX_LINES, in reading order.
    """
    fit = matches[:, 0] + matches[:, 2]  # in meaning, and in its words
    beside = F.max_pool1d(fit[None, None], 5, 1, 2)[0, 0]
    return (beside + 1e-3 * fit).argsort(descending=True, stable=True)[:MAX_LINES].sort().values


def pair_facts(boxes: Tensor) -> Tensor:
    """Return how lines [L, 4], boxes in px, lie to one another, float [L, L, PAIR]; row i sees line j."""
    x0, y0, x1, y1 = boxes.unbind(1)
    usual = (y1 - y0).median().clamp_min(1.0) if len(boxes) else boxes.new_tensor(1.0)
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    right = (x0[None] - x1[:, None]) / usual  # the gap from i to j where j is right of i
    left = (x0[:, None] - x1[None]) / usual
    down = (y0[None] - y1[:, None]) / usual
    up = (y0[:, None] - y1[None]) / usual
    rows = (torch.minimum(y1[:, None], y1[None]) - torch.maximum(y0[:, None], y0[None])) / torch.minimum(
        (y1 - y0)[:, None], (y1 - y0)[None]
    ).clamp_min(1.0)
    columns = (torch.minimum(x1[:, None], x1[None]) - torch.maximum(x0[:, None], x0[None])) / torch.minimum(
        (x1 - x0)[:, None], (x1 - x0)[None]
    ).clamp_min(1.0)
    near = [torch.exp(-gap.clamp_min(0) / 4) * (gap > -1) for gap in (right, left, down, up)]
    edge = torch.exp(-((x0[:, None] - x0[None]) / usual).abs())
    far = torch.tanh((x[None] - x[:, None]) / usual / 20), torch.tanh((y[None] - y[:, None]) / usual / 20)
    same = torch.eye(len(boxes))
    return torch.stack((rows.clamp(0, 1), columns.clamp(0, 1), *near, edge, *far, same), -1)


class LineLayer(nn.Module):
    """A transformer layer over lines: attention biased by their layout, then two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList((nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)))
        self.inner, self.outer = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Sequential(nn.Linear(PAIR, 32), nn.GELU(), nn.Linear(32, HEADS))
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        """Update the lines' vectors, [Q, L, WIDTH] -> the same; `pairs` is [L, L, PAIR]."""
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.inner(self.norms[0](x)).chunk(3, -1)
        )
        bias = self.bias(pairs).movedim(-1, 0)  # (HEADS, L, L)
        weights = (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + bias).softmax(-1)
        x = x + self.outer((weights @ value).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class LineHead(nn.Module):
    """Scores how much questions need each line of print in a picture."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.meaning, self.asked = nn.Linear(SENTENCE_WIDTH, WIDTH), nn.Linear(SENTENCE_WIDTH, WIDTH)
        self.facts, self.matches = nn.Linear(FACTS, WIDTH), nn.Linear(MATCHES, WIDTH)
        self.words = nn.EmbeddingBag(HASHED, WIDTH, mode="mean")
        nn.init.normal_(self.words.weight, std=0.1)
        self.cross = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList(LineLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.last = nn.Linear(WIDTH + MATCHES, 2)
        nn.init.constant_(self.last.bias, -3.0)
        self.present = nn.Sequential(nn.Linear(2 * WIDTH + 2 * MATCHES, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(
        self,
        vectors: Tensor,
        facts: Tensor,
        boxes: Tensor,
        questions: Tensor,
        matches: Tensor,
        words: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Score L lines for Q questions: logits [Q, L, 2], and the logit [Q] that the print holds an answer.

        A line's second logit is for what stands just left of it: a tick box, a radio button, an icon.

        Args:
            vectors: sentence vectors of the lines, [L, SENTENCE_WIDTH], of unit length.
            facts: `line_facts`, [L, FACTS].
            boxes: of the lines in px, [L, 4].
            questions: sentence vectors of the questions, [Q, SENTENCE_WIDTH].
            matches: `line_matches` of each question, [Q, L, MATCHES].
            words: the table rows of each question's words (`word_rows`).
        """
        question = self.asked(questions * 8)
        starts = torch.tensor([0, *(len(w) for w in words[:-1])]).cumsum(0)
        question = question + self.words(torch.cat(list(words)), starts)
        lines = self.meaning(self.drop(vectors * 8))
        x = lines + self.facts(facts) + self.matches(matches) + question[:, None]
        x = x + self.cross(lines[None] * question[:, None])  # what the line and the question have in common
        pairs = pair_facts(boxes)
        for layer in self.layers:
            x = layer(self.drop(x), pairs)
        x = self.norm(x)
        logits = self.last(torch.cat((x, matches), -1))
        summary = torch.cat((x.mean(1), x.amax(1), matches.amax(1), matches.mean(1)), -1)
        return logits, self.present(summary)[:, 0]


@lru_cache(maxsize=4096)
def word_rows(question: str) -> Tensor:
    """Return the rows, long [n], of a question's words and pairs of neighbouring words in the hashed-word
    table.
    """
    words = split_words(question)[:48] or ["?"]
    grams = [*words, *(f"{a} {b}" for a, b in pairwise(words))]
    return torch.tensor([zlib.crc32(gram.encode()) % HASHED for gram in grams])
