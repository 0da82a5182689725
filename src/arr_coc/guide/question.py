"""The question: which words to look for on the page, and what each of them is for.

    terms("Who is the seller?")     the words "who", "is", "the", "seller", and "vendor", ... for the fourth

Two transformer layers over the words give each a *role*: "the" counts for nothing, "date" in "What is the
due date?" for more than in "On which date ...?". Words that mean the same (`lexicon`), other forms of a word
and words that have to do with one (`meanings`) are looked for beside each.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from arr_coc.guide.lexicon import STOP_WORDS, answers, expand, hints
from arr_coc.guide.meanings import WIDTH as MEANING
from arr_coc.guide.meanings import inflections, meaning, related
from arr_coc.guide.words import DIM, split_words

MOST = 48
"""Words of a question that are read; of a longer one the first and the last."""
MEANINGS = 8192
"""Rows of the table of whole words."""
WIDTH = 96
"""Of the layers over the question."""
QUESTION_WORDS = frozenset(("when", "who", "whom", "whose", "where", "how", "why", "which"))
"""For what may be printed beside the answer, as a date beside that to "when", these are looked for."""


GENERAL_WORDS = frozenset(
    "anomaly anything article belong caption catches chart contain contains content contents convert "
    "dashboard describe description detail details difference different document drawing email "
    "everything exception explain extract eye find fit form gist going html image invoice kind letter "
    "look looks map markdown match mistake not notice ocr odd others outlier overall overview page "
    "painting photo photograph picture place poster read receipt remarkable represent rest screen "
    "screenshot see seen show shown site slide something sort spot stand stands strange striking "
    "summarise summarize summary table tell text transcribe transcription translate translation type "
    "unusual website weird wrong".split()
)
"""Words of questions about all of a picture, or about what stands out in it."""


OVERVIEW_VERBS = frozenset("caption describe recap summarise summarize transcribe".split())
LOUDLY = frozenset(("aloud", "loud"))
KINDS = frozenset(
    "article bill brochure chart dashboard document drawing email flyer form image infographic invoice "
    "letter map memo newspaper page painting photo photograph picture poster receipt report screen "
    "screenshot sheet site slide spreadsheet statement ticket webpage website".split()
)
"""What a whole picture may be; a table or a label is a part of one."""


SHOWING = frozenset("depict depicted depicts see seen show shown shows".split())
PLAIN = frozenset("a an are be can could do does here i in is of on s that the this to was we you".split())
"""Words of a question of what a picture shows that name no part of it."""
WHOLE = frozenset("image page painting picture screen screenshot".split())
"""What is all of a picture where it is asked what it shows; a chart or a photo may be a part of a page."""


def is_overview(words: Sequence[str]) -> bool:
    """Whether a question asks, in so many words, for all of a picture: "describe the invoice", "read the page
    aloud", "what is shown here".
    """
    first, *rest = words
    if first == "what" and SHOWING.intersection(rest):
        others = [word for word in rest if word not in SHOWING and word not in PLAIN]
        return len(others) <= 1 and all(word in WHOLE for word in others)
    kinds = [word for word in rest if word not in STOP_WORDS and word not in LOUDLY]
    few = len(kinds) == 1 if first == "read" else first in OVERVIEW_VERBS and len(kinds) <= 1
    return few and all(word in KINDS for word in kinds)


class Terms(NamedTuple):
    """What a question makes one look for.

    Attributes:
        words: its own.
        others: words that may be printed for one of them.
        stands_for: the index of that word, one per other.
        strengths: of that bond, in (0, 1]: 1 for what the lexicon lists, less for what is merely related.
    """

    words: tuple[str, ...]
    others: tuple[str, ...]
    stands_for: tuple[int, ...]
    strengths: tuple[float, ...]


@lru_cache(maxsize=256)
def terms(question: str) -> Terms:
    """The terms of a question."""
    words = split_words(question) or ["?"]
    if len(words) > MOST:
        words = words[: MOST // 2] + words[-(MOST - MOST // 2) :]
    others = dict(reversed((*expand(words), *answers(words))))
    for index, word in enumerate(words):
        for form in () if word in STOP_WORDS else inflections(word):
            if form not in words:
                others.setdefault(form, index)
    asks = next((i for i, word in enumerate(words) if word in QUESTION_WORDS), 0)
    for hint in hints(question):
        for word in split_words(hint):
            if word not in words:
                others.setdefault(word, asks)
    strengths = dict.fromkeys(others, 1.0)
    for index, word in enumerate(words):
        for other, strength in () if word in STOP_WORDS else related(word):
            if other not in words and strength > strengths.get(other, 0.0):
                others[other], strengths[other] = index, strength
    return Terms(tuple(words), tuple(others), tuple(others.values()), tuple(strengths[o] for o in others))


def definitions(words: Sequence[str]) -> Tensor:
    """The meanings of words, [T, MEANING] on the CPU; zeros for those that say nothing by themselves."""
    return torch.stack([torch.zeros(MEANING) if word in STOP_WORDS else meaning(word) for word in words])


class Reading(NamedTuple):
    """A question as the head uses it: `tokens` [T, WIDTH] one per word, `pooled` [WIDTH], their mean."""

    tokens: Tensor
    pooled: Tensor


class QuestionEncoder(nn.Module):
    """The layers over a question."""

    def __init__(self) -> None:
        super().__init__()
        self.meaning = nn.Embedding(MEANINGS, 64)
        self.join = nn.Linear(DIM + 64, WIDTH)
        self.learned = nn.Linear(MEANING, WIDTH, bias=False)
        nn.init.zeros_(self.learned.weight)
        self.place = nn.Parameter(torch.randn(MOST, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)

    def forward(self, words: Sequence[str], vectors: Tensor, meant: Tensor | None = None) -> Reading:
        """Read a question.

        Args:
            words: at least one, at most MOST normal words.
            vectors: [T, DIM] of them.
            meant: [T], by how much what the table says of each word counts; None: fully.
        """
        tokens = self.layers(self._embed(words, vectors, meant)[None])[0]
        return Reading(tokens, tokens.mean(0))

    def read(self, questions: Sequence[Sequence[str]], vectors: Sequence[Tensor]) -> list[Reading]:
        """Read several questions at once; arguments as of `forward`, one per question."""
        rows = [self._embed(words, each) for words, each in zip(questions, vectors, strict=True)]
        lengths = torch.tensor([len(row) for row in rows], device=rows[0].device)
        padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        blank = torch.arange(padded.shape[1], device=lengths.device) >= lengths[:, None]
        tokens = self.layers(padded, src_key_padding_mask=blank if bool(blank.any()) else None)
        parts = [row[:length] for row, length in zip(tokens, lengths.tolist(), strict=True)]
        return [Reading(part, part.mean(0)) for part in parts]

    def _embed(self, words: Sequence[str], vectors: Tensor, meant: Tensor | None = None) -> Tensor:
        """What the layers begin with, [T, WIDTH]."""
        rows = torch.tensor(
            [zlib.crc32(b"=" + word.encode()) % MEANINGS for word in words], device=vectors.device
        )
        meanings = self.meaning(rows) if meant is None else self.meaning(rows) * meant[:, None]
        joined = self.join(
            torch.cat((vectors.to(self.join.weight.dtype), meanings.to(self.join.weight.dtype)), -1)
        )
        entries = torch.stack([meaning(word) for word in words]).to(joined)
        return joined + self.learned(entries) + self.place[: len(words)]
