"""The question: its words as vectors, the words to look for on the picture, and the role of each word.

split_words("Who pays INV-204?")    ["who", "pays", "inv-204"]
WordEncoder()(["total", "tota1"])   [2, DIM], of unit length
terms("Who is the seller?")         the words "who", "is", "the", "seller", and "vendor", ... for the last
QuestionEncoder()(words, vectors)   Reading: tokens [T, WIDTH], pooled [WIDTH]
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from arr_coc.choose.filters import unit
from arr_coc.guide.lexicon import (
    MAX_WORD_CHARS,
    MEANING_WIDTH,
    STOP_WORDS,
    answers,
    expand,
    hints,
    inflections,
    meanings_of,
    related,
    text_meaning,
)

# Characters that are told apart, without case and accents.
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.,:;-_/%$€£()+=#@&'\"!?*<>"
MAX_LETTERS = 24  # characters of a word that its convolution reads
NGRAM_ROWS = 20_000  # rows of the table of hashed n-grams
DIM = 96  # width of the vectors of words and of print


def folded(text: str) -> str:
    """Return a text in lower case and without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


@lru_cache(maxsize=100_000)
def normal(word: str) -> str:
    """Return a word as it is compared: folded, without punctuation around it; signs alone stay."""
    plain = folded(word)
    return plain.strip(".,:;!?\"'“”‘’«»()[]{}<>|*_=-–—·•…/\\") or plain


def split_words(text: str) -> list[str]:
    """Return the words of a text in order, each `normal`, without empty ones."""
    return [word for word in (normal(part[:MAX_WORD_CHARS]) for part in text.split()) if word]


@lru_cache(maxsize=100_000)
def _ngrams(word: str) -> tuple[int, ...]:
    """Rows of the table: hashed n-grams of 1 to 4 characters with the word's borders, and the word itself."""
    framed = f"<{word}>"
    grams = {framed} | {framed[i : i + n] for n in (1, 2, 3, 4) for i in range(len(framed) - n + 1)}
    return tuple(zlib.crc32(gram.encode()) % NGRAM_ROWS for gram in sorted(grams))


@lru_cache(maxsize=100_000)
def _letters(word: str) -> tuple[int, ...]:
    """Return the characters of a word as numbers: 0 is padding, 1 any character outside ALPHABET."""
    numbers = tuple(ALPHABET.find(letter) + 2 for letter in word[:MAX_LETTERS])
    return numbers + (0,) * (MAX_LETTERS - len(word))


class WordEncoder(nn.Module):
    """Vectors of words by their letters: any word has one, and a wrong letter changes it little.

    The mean of vectors of hashed character n-grams (Bojanowski et al. 2017), plus a small convolution.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(NGRAM_ROWS, DIM, mode="mean")
        nn.init.normal_(self.table.weight, std=0.5)
        self.letters = nn.Embedding(len(ALPHABET) + 2, 32, padding_idx=0)
        self.spell = nn.Sequential(
            nn.Conv1d(32, 96, 3, padding=1), nn.ReLU(), nn.Conv1d(96, 96, 3, padding=1), nn.ReLU()
        )
        self.join = nn.Linear(96, DIM)

    def forward(self, words: Sequence[str]) -> Tensor:
        """Return the vectors [W, DIM] of normal words (see `normal`), float32."""
        if not words:
            return self.join.weight.new_zeros(0, DIM, dtype=torch.float32)
        device = self.join.weight.device
        return self.encode(*(part.to(device) for part in letters_of(words)))

    def encode(self, grams: Tensor, starts: Tensor, letters: Tensor) -> Tensor:
        """Return the vectors [W, DIM] of words as numbers, see `letters_of`."""
        spelled = self.spell(self.letters(letters).movedim(1, 2))
        spelled = spelled.masked_fill(letters[:, None] == 0, 0.0).amax(-1)  # padding counts as 0
        return unit(self.table(grams, starts) + self.join(spelled))


def letters_of(words: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Return words as numbers, on the CPU, of which "" has none.

    Returns:
        Rows of the table of n-grams of all words, long [G]; where those of each word start, long [W]; its
        characters, long [W, MAX_LETTERS].
    """
    grams = [_ngrams(word) if word else () for word in words]
    rows = np.fromiter((row for gram in grams for row in gram), np.int64)
    starts = np.cumsum([0, *(len(gram) for gram in grams[:-1])], dtype=np.int64)
    letters = np.array([_letters(word) for word in words], np.int64)
    return torch.from_numpy(rows), torch.from_numpy(starts), torch.from_numpy(letters)


MAX_WORDS = 48  # words of a question that are read; of a longer one the first and the last
HASHED_WORDS = 8192  # rows of the table of hashed whole words
WIDTH = 96  # of the layers over the question
# They stand for what may be printed beside the answer, as "when" for a date.
QUESTION_WORDS = frozenset(("when", "who", "whom", "whose", "where", "how", "why", "which"))
# Words of questions about all of a picture, or about what stands out in it.
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


class Terms(NamedTuple):
    """The words of a question, and those that may be printed for them."""

    words: tuple[str, ...]  # its own
    # words that may be printed for one of them: synonyms and hints of the lexicon, other forms of a word, and
    # words of related meaning
    others: tuple[str, ...]
    stands_for: tuple[int, ...]  # the index of that word, one per other
    # of that bond, in (0, 1]: 1 for what the lexicon lists, less for what is merely related
    strengths: tuple[float, ...]


@lru_cache(maxsize=256)
def terms(question: str) -> Terms:
    """Return the words of a question, at most MAX_WORDS, and others that may be printed for them; cached."""
    words = split_words(question) or ["?"]
    if len(words) > MAX_WORDS:
        words = words[: MAX_WORDS // 2] + words[-(MAX_WORDS - MAX_WORDS // 2) :]
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


class QuestionTensors(NamedTuple):
    """Q questions as numbers, on one device: all that the guide needs of them, and no text.

    T words and W terms that may stand for them, shorter questions padded. The vectors of the words of all
    questions come first, then those of the terms: word t of question q is q * T + t, its term w is
    Q * T + q * W + w.
    """

    grams: Tensor  # long [G], see `letters_of`
    starts: Tensor  # long [Q * (T + W)]
    letters: Tensor  # long [Q * (T + W), MAX_LETTERS]
    there: Tensor  # bool [Q, T], which words are not padding
    rows: Tensor  # long [Q, T], of the table of whole words
    common: Tensor  # bool [Q, T], words of questions about all of a picture, and those that mean nothing
    meanings: Tensor  # [Q, T, MEANING_WIDTH], zeros for words without a row
    defined: Tensor  # bool [Q, T], words that mean something by themselves
    whole: Tensor  # [Q, MEANING_WIDTH], the meaning of the whole question
    colours: Tensor  # bool [Q, T, len(colours)], which colours each word names
    stands_for: Tensor  # long [Q, W], the word that each term stands for
    strengths: Tensor  # [Q, W], of that bond, 0 for padding

    def to(self, device: torch.device) -> QuestionTensors:
        """Return the same on a device."""
        return QuestionTensors(*(part.to(device, non_blocking=True) for part in self))


STEPS: tuple[int, int, int] = (16, 64, 1024)  # words, terms and n-grams are padded to multiples off the CPU


def question_tensors(
    questions: Sequence[Terms],
    colours: Mapping[str, Sequence[int]],
    count: int,
    device: torch.device | str = "cpu",
) -> QuestionTensors:
    """Return questions as numbers on a device.

    `colours` has the words that name some of `count` colours, with their numbers. Off the CPU sizes are
    padded to multiples of STEPS, so that few kernels and graphs are made.
    """
    device = torch.device(device)
    steps = (1, 1, 1) if device.type == "cpu" else STEPS
    words = _multiple(max(len(one.words) for one in questions), steps[0])
    others = _multiple(max(len(one.others) for one in questions), steps[1])
    size = len(questions)
    every = [word for one in questions for word in (*one.words, *("",) * (words - len(one.words)))]
    terms = [word for one in questions for word in (*one.others, *("",) * (others - len(one.others)))]
    grams, starts, letters = letters_of([*every, *terms])
    if short := _multiple(len(grams), steps[2]) - len(grams):
        # What is padded would be part of the last word, so it is a word of its own, which nobody reads.
        starts = torch.cat((starts, torch.tensor([len(grams)])))
        letters = torch.cat((letters, letters.new_zeros(1, MAX_LETTERS)))
        grams = torch.cat((grams, grams.new_zeros(short)))

    def flags(is_so: Callable[[str], bool]) -> Tensor:
        return torch.tensor([is_so(word) for word in every]).view(size, words)

    named = np.zeros((size * words, count), np.bool_)
    for i, word in enumerate(every):
        named[i, list(colours.get(word, ()))] = True
    stands_for = np.zeros((size, others), np.int64)
    strengths = np.zeros((size, others), np.float32)
    for i, one in enumerate(questions):
        stands_for[i, : len(one.others)] = one.stands_for
        strengths[i, : len(one.others)] = one.strengths
    return QuestionTensors(
        grams,
        starts,
        letters,
        flags(bool),
        torch.tensor([zlib.crc32(b"=" + w.encode()) % HASHED_WORDS for w in every]).view(size, words),
        flags(lambda word: word in STOP_WORDS or word in GENERAL_WORDS),
        meanings_of(every).view(size, words, MEANING_WIDTH),
        flags(lambda word: word not in STOP_WORDS),
        torch.stack([text_meaning(one.words) for one in questions]),
        torch.from_numpy(named).view(size, words, count),
        torch.from_numpy(stands_for),
        torch.from_numpy(strengths),
    ).to(device)


def _multiple(count: int, step: int) -> int:
    """Return the least multiple of a step that is at least a count."""
    return -(-count // step) * step


class Reading(NamedTuple):
    """Questions as the head uses them."""

    tokens: Tensor  # [Q, T, WIDTH], one per word
    there: Tensor  # bool [Q, T], which of them are not padding
    pooled: Tensor  # [Q, WIDTH], their means
    expected: Tensor  # [Q, MEANING_WIDTH], of unit length: the meaning of print that answers each


class QuestionEncoder(nn.Module):
    """Two transformer layers over the words of a question, which give each word its role."""

    def __init__(self) -> None:
        super().__init__()
        self.meaning = nn.Embedding(HASHED_WORDS, 64)
        self.join = nn.Linear(DIM + 64, WIDTH)
        self.learned = nn.Linear(MEANING_WIDTH, WIDTH, bias=False)
        nn.init.zeros_(self.learned.weight)
        self.place = nn.Parameter(torch.randn(MAX_WORDS, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            4,
            2 * WIDTH,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.expected = nn.Linear(WIDTH, MEANING_WIDTH)
        nn.init.zeros_(self.expected.weight)
        nn.init.zeros_(self.expected.bias)

    def forward(self, questions: QuestionTensors, vectors: Tensor) -> Reading:
        """Read questions with the vectors of their words, [Q, T, DIM].

        Print is expected to mean what the question means, but for what was learned.
        """
        tokens = self.encode(questions, vectors, torch.ones_like(questions.there))
        return self._reading(questions, tokens)

    def read_twice(self, questions: QuestionTensors, vectors: Tensor) -> tuple[Reading, Tensor]:
        """Return the reading of `forward`, and the `pooled` of one without the rows of particular words, [Q,
        WIDTH].

        A name may share its row in the table of hashed whole words with "overview": in the second reading
        the rows of words of general questions alone count.
        """
        parts = {name: getattr(questions, name) for name in ("rows", "meanings", "there")}
        both = questions._replace(**{name: torch.cat((part, part)) for name, part in parts.items()})
        counted = torch.cat((torch.ones_like(questions.there), questions.common))
        tokens, second = self.encode(both, torch.cat((vectors, vectors)), counted).chunk(2)
        return self._reading(questions, tokens), _mean(second, questions.there)

    def _reading(self, questions: QuestionTensors, tokens: Tensor) -> Reading:
        pooled = _mean(tokens, questions.there)
        expected = unit(questions.whole + self.expected(pooled).float())
        return Reading(tokens, questions.there, pooled, expected)

    def encode(self, questions: QuestionTensors, vectors: Tensor, counted: Tensor) -> Tensor:
        """Return the tokens [Q, T, WIDTH] of questions.

        `counted` bool [Q, T]: words whose rows in the table of whole words count.
        """
        dtype = self.join.weight.dtype
        rows = self.meaning(questions.rows) * counted[..., None]
        joined = self.join(torch.cat((vectors.to(dtype), rows.to(dtype)), -1))
        joined = joined + self.learned(questions.meanings.to(joined)) + self.place[: joined.shape[1]]
        tokens = self.layers(joined, src_key_padding_mask=~questions.there)
        return tokens.masked_fill(~questions.there[..., None], 0.0)


def _mean(tokens: Tensor, there: Tensor) -> Tensor:
    """Return the mean [Q, WIDTH] of the tokens [Q, T, WIDTH] that are there; others are zeros."""
    return tokens.sum(1) / there.sum(1, keepdim=True).to(tokens.dtype)
