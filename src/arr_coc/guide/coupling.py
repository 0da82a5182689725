"""The coupling of a picture's cells with a question: how likely the question needs each, by the guide.

page = view(guide, pixels)                               once per picture
couple(guide, page, "What is the total?", (32, 32))      Coupling: logits [32, 32], for any grid
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.guide.guide import Guide, GuidePage, Search, load_guide
from arr_coc.guide.lexicon import STOP_WORDS
from arr_coc.guide.print_encoder import PLACE, complete_runs
from arr_coc.guide.question import ALPHABET, GENERAL_WORDS, outright_scope, terms

GUIDE = "guide"  # name of the guide as a source of relevance
MAX_PIXELS = 2048**2  # of a picture that the guide encodes; larger ones are scaled down
MAX_SIDE = 8192  # px of its longer side: a page of many screens in one shot is read as it is
# Factor and offset on the logit of presence, and what a recognised word adds, that make `confidence` a
# probability; fitted on validation pages (`runs/guide_matches.py`), like the next two.
CALIBRATION: tuple[float, float, float] = (0.58, -1.29, 1.43)
# Factor and offset on the best cosine of a word with a place that make `Match.likeness` a probability: of the
# question's own words, of those that the lexicon lists for them, and of related ones.
PRINTED: dict[str, tuple[float, float]] = {
    "itself": (62.1, -42.3),
    "listed": (45.8, -32.2),
    "related": (67.6, -47.4),
}
LIKELY = 0.9  # the least likeness of a match that counts as recognised: of those at least 95 % are there

FOUND = 0.5  # the least probability of a finding that counts as recognised
# Common words read on a picture with print: at most 8 on splatters, 16 and more on scattered words.
PRINTED_WORDS = 12
COLOUR_TERM = "the colour {}"  # the term of a match of a colour that a word names
# The least `overview`, or `unusual`, of a question that asks for it outright (`outright_scope`); the other is
# then at most the rest.
OUTRIGHT = 0.9


class Match(NamedTuple):
    """A word that was looked for, and where it fits best."""

    word: str  # of the question
    term: str  # what was looked for: the word, another that stands for it, or the colour that it names
    likeness: float  # in [0, 1], the probability that the best place shows the term
    place: tuple[float, float]  # (y, x) of that place's middle, in shares of the picture's height and width
    # in (0, 1], how much the term has to do with the word: 1 for itself and for what the lexicon lists
    strength: float = 1.0


class Finding(NamedTuple):
    """Something that a source of relevance read or recognised, and how likely the question needs it."""

    source: str  # name of the source
    text: str  # what is printed there, or what it is
    probability: float  # in [0, 1]
    box: tuple[float, float, float, float]  # (x0, y0, x1, y1) in shares of the picture's width and height


@dataclass(frozen=True, eq=False)
class Coupling:
    """What a source of relevance, such as the guide, finds about one picture and one question.

    Attributes:
        logits: Float [H, W], one per cell: that the question needs it.
        confidence: In [0, 1], the probability that the picture holds what is asked for; without meaning where
            `overview` or `unusual` is high.
        overview: In [0, 1], that the question is about all of the picture ("Describe the image.").
        unusual: In [0, 1], that it asks for what stands out ("What is unusual here?").
        matches: Content words of the question in order, each followed by the terms that stand for it.
        printed: Whether common words can be read on the picture, whatever the question.
        findings: What other sources than the guide found, the likeliest first.
        by_cell: Whether each cell was scored by itself, as the guide does, so that a gap between scores says
            something; boxes give one score to all of their cells.
    """

    logits: Tensor
    confidence: float
    overview: float = 0.0
    unusual: float = 0.0
    matches: tuple[Match, ...] = ()
    printed: bool = False
    findings: tuple[Finding, ...] = ()
    by_cell: bool = False

    def best(self, least: float = LIKELY) -> tuple[Match, ...]:
        """Of each word of the question its best match, if its likeness is at least `least`."""
        best: dict[str, Match] = {}
        for match in self.matches:
            before = best[match.word].likeness if match.word in best else -1.0
            if match.likeness >= least and match.likeness > before:
                best[match.word] = match
        return tuple(best.values())

    @cached_property
    def recognised(self) -> bool:
        """Whether a word of the question was found on the picture, or another source found what it needs."""
        return bool(self.best()) or any(finding.probability >= FOUND for finding in self.findings)

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(match.word for match in self.matches))

    def to_dict(self) -> dict[str, object]:
        """All fields but the logits, as JSON values under the names of saved records."""
        return {
            "confidence": round(self.confidence, 4),
            "whole": round(self.overview, 4),  # the names in saved records
            "odd": round(self.unusual, 4),
            "printed": self.printed,
            "matches": [match._asdict() for match in self.matches],
        } | ({"findings": [finding._asdict() for finding in self.findings]} if self.findings else {})


def view(guide: Guide, picture: Tensor) -> GuidePage:
    """The guide's encoding of a picture, float [3, h, w] in [0, 1] of any size, scaled down to `fitted`."""
    picture = picture.to(guide.threshold.device)
    height, width = picture.shape[-2:]
    size = fitted(width, height)
    if size != (width, height):
        picture = F.interpolate(picture[None].float(), size[::-1], mode="bilinear", antialias=True)[0]
        picture = picture.clamp(0, 1)
    return guide.page(picture)


def fitted(width: int, height: int) -> tuple[int, int]:
    """The size (width, height) in px at which the guide encodes a picture of a size in px."""
    scale = min(1.0, math.sqrt(MAX_PIXELS / (width * height)), MAX_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


class Calibration(NamedTuple):
    """Scale and bias that make the logits of a source log odds of evidence: scale * logit + bias."""

    scale: float
    bias: float = 0.0


class GuideSource:
    """The guide as a source: print, meaning and layout, by its own small networks."""

    name = GUIDE
    calibration: Calibration | None = Calibration(1.0)  # it learns with cross-entropy over single cells

    def __init__(self, guide: Guide | None = None) -> None:
        self.guide = load_guide() if guide is None else guide

    @cached_property
    def version(self) -> str:
        """That of the guide's weights."""
        return self.guide.version

    def view(self, picture: Tensor) -> GuidePage:
        """Encode a picture, float [3, h, w] in [0, 1], before any question."""
        return view(self.guide, picture)

    def couple(self, view: Any, question: str, grid: tuple[int, int]) -> Coupling:
        """Score the cells of a grid (H, W) that divides the picture evenly; `view` is a GuidePage."""
        return couple(self.guide, view, question, grid)


@torch.no_grad()
def couple(guide: Guide, page: GuidePage, question: str, grid: tuple[int, int]) -> Coupling:
    """Score the cells of a picture by a question, on a grid (H, W) of any shape that divides it evenly."""
    (search,) = guide.search(page, [question])
    judged = guide.weigh(page, [search])
    words = search.terms.words
    spots = matches(page, search)
    recognised = any(match.likeness >= LIKELY for match in spots)
    confidence = probability(float(judged.present), recognised) * readable(words)
    overview, unusual = _scope(guide, words, search.own)
    logits = cell_logits(complete_runs(judged.logits, page.runs)[0], page.size, grid).cpu()
    printed = page.vocabulary >= PRINTED_WORDS
    return Coupling(logits, confidence, overview, unusual, spots, printed, by_cell=True)


def probability(present: float, recognised: bool) -> float:
    """The confidence, in [0, 1], that a picture holds what is asked for, calibrated.

    `present`: the head's logit of that; `recognised`: a word of the question was found on the picture.
    """
    factor, offset, more = CALIBRATION
    return float(torch.sigmoid(torch.tensor(present * factor + offset + more * recognised)))


def printed_probability(cosines: Tensor, itself: bool, strength: float) -> Tensor:
    """The probability that places show a term, from its cosines with them.

    `itself`: the term is a word of the question; else it has to do with one by `strength`, in (0, 1].
    """
    factor, offset = PRINTED["itself" if itself else "listed" if strength == 1 else "related"]
    return torch.sigmoid(cosines.float() * factor + offset)


def crop_places(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """The part of maps of places [..., h, w] that lies in a picture of (height, width) px."""
    height, width = (-(-side // px) for side, px in zip(size, PLACE, strict=True))
    return maps[..., :height, :width]


@torch.no_grad()
def scope(guide: Guide, question: str) -> tuple[float, float]:
    """How far a question is about all of any picture, and how far about what stands out, each in [0, 1]."""
    words = terms(question).words
    return _scope(guide, words, guide.words(words))


def _scope(guide: Guide, words: tuple[str, ...], vectors: Tensor) -> tuple[float, float]:
    # The lower of two readings: a name may share its row in the table of hashed whole words with "overview";
    # the second reading uses the rows of words of general questions alone.
    common = [word in STOP_WORDS or word in GENERAL_WORDS for word in words]
    readings = (
        guide.reader(words, vectors),
        guide.reader(words, vectors, torch.tensor(common, device=vectors.device)),
    )
    pooled = torch.stack([reading.pooled for reading in readings])
    overview, unusual = guide.head.scope(pooled).float().sigmoid().amin(0).tolist()
    says_overview, says_unusual = outright_scope(words)
    if says_unusual:
        return min(overview, 1 - OUTRIGHT), max(unusual, OUTRIGHT)
    return (max(overview, OUTRIGHT), min(unusual, 1 - OUTRIGHT)) if says_overview else (overview, unusual)


def readable(words: Sequence[str]) -> bool:
    """Whether a question has a content word with a character of ALPHABET; other scripts are not read."""
    content = [word for word in words if word not in STOP_WORDS] or words
    return any(letter.isalnum() and letter in ALPHABET for word in content for letter in word)


def cell_logits(places: Tensor, size: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """Logits of the cells of a picture of (height, width) px, [..., H, W], from those of places [..., h, w].

    The log of the mean odds of the places in each; places may reach beyond the picture.
    """
    rows, columns = (_samples(*axis).to(places.device) for axis in zip(size, grid, PLACE, strict=True))
    top = places.amax((-2, -1), keepdim=True)  # so that no odds overflow
    odds = (places - top).exp()[..., rows.flatten(), :][..., columns.flatten()]  # (..., H * n, W * m)
    mean = odds.unflatten(-1, columns.shape).unflatten(-3, rows.shape).mean((-3, -1))  # over n and m
    return mean.clamp_min(1e-30).log() + top


def _samples(side: int, cells: int, place: int) -> Tensor:
    """The places in each cell along a side of `side` px: long [cells, n], each at least once."""
    n = max(4, math.ceil(side / cells / place))
    middles = (torch.arange(cells * n) + 0.5) * (side / (cells * n))
    return (middles / place).long().view(cells, n)


def matches(page: GuidePage, search: Search) -> tuple[Match, ...]:
    """The content words of a question and the terms that stand for them, each with its best place."""
    words, others, stands_for, strengths = search.terms
    cosines = crop_places(search.cosines, page.size)
    width, best = cosines.shape[-1], cosines.flatten(1).max(1)
    colours = crop_places(search.colours, page.size).flatten(1).max(1)

    def middle(index: int) -> tuple[float, float]:
        place = divmod(index, width)
        y, x = ((at + 0.5) * px / side for at, px, side in zip(place, PLACE, page.size, strict=True))
        return min(1.0, y), min(1.0, x)

    listed = []
    for number, (word, group) in enumerate(zip(words, _groups(len(words), stands_for), strict=True)):
        if word in STOP_WORDS:
            continue
        for index in group:
            term = (*words, *others)[index]
            strength = 1.0 if index < len(words) else strengths[index - len(words)]
            likeness = float(printed_probability(best.values[index], index < len(words), strength))
            listed.append(Match(word, term, likeness, middle(int(best.indices[index])), strength))
        if float(colours.values[number]) > 0:
            place = middle(int(colours.indices[number]))
            listed.append(Match(word, COLOUR_TERM.format(word), float(colours.values[number]), place))
    return tuple(listed)


def _groups(words: int, stands_for: tuple[int, ...]) -> list[list[int]]:
    """Per word its own index and those of the others that stand for it."""
    groups = [[index] for index in range(words)]
    for number, word in enumerate(stands_for):
        groups[word].append(words + number)
    return groups
