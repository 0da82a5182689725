"""The coupling of a picture's cells with a question: how likely the question needs each, by the guide.

page = view(guide, pixels)                               once per picture
couple(guide, page, "What is the total?", (32, 32))      Coupling: logits [32, 32], for any grid
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from PIL.Image import Image, Resampling
from torch import Tensor

from arr_coc.files.pixels import float_pixels
from arr_coc.guide import GUIDE
from arr_coc.guide.colours import colours_of, unnamed_by_colour
from arr_coc.guide.guide import Guide, GuidePage, Judged, crop_places, join_pages, load_guide
from arr_coc.guide.lexicon import STOP_WORDS, stem
from arr_coc.guide.print_encoder import PLACE
from arr_coc.guide.question import ALPHABET, Terms, terms
from arr_coc.guide.wording import names_print, outright_scope

MAX_PIXELS = 2048**2  # of a picture that the guide encodes; larger ones are scaled down
PIXELS_AT_ONCE = 8 * 1024**2  # of pictures that are encoded, or scored by a question each, together
MAX_SIDE = 8192  # px of its longer side: a page of many screens in one shot is read as it is
# How much a small picture is enlarged before it is encoded, up to how many px, and the least that is worth
# it: print of 9 to 12 px, as screens have it, is read better so (`runs/enlarged.py`), and a picture that is
# larger when it comes costs no more.
ENLARGED, ENLARGED_PIXELS, MIN_ENLARGED = 1.5, 1152**2, 1.25
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
# The least probability of a finding that counts as recognised, and of two words that stand side by side.
FOUND = 0.5
BESIDE = (2, 4)  # places, down and across, from a word to the next one of its line or of the line below
# The odds that two words are both printed, times this where their places lie side by side. Reckoned, not
# fitted: by chance 2 in 100 do, for 45 of some 2,500 places are so near; of a label's words say 30 in 100.
TOGETHER = 15
SCOPE: tuple[float, float] = (0.3, 0.7)  # `overview` or `unusual`: up to it not at all, from it wholly
# Common words read on a picture with print: at most 8 on splatters, 16 and more on scattered words.
PRINTED_WORDS = 12
# A picture is taken for a photograph on which fewer common words are read and a smaller share of px is like
# their neighbours, to 1.5 of 255 (`runs/photographs.py`): of photographs the share was at most 0.50.
PHOTOGRAPH_WORDS = 6
MAX_EVEN = 0.53
ALIKE = 1.5 / 255
# The most confidence where a thing is asked for by colour and name, and only the colour was found: below
# `trust.SURE`, whatever has that colour.
OF_COLOUR_ALONE = 0.45
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


class SourcePart(NamedTuple):
    """What one source of relevance says of a picture and a question."""

    source: str  # its name
    logits: Tensor  # [H, W], log odds that the question needs a cell
    confidence: float  # in [0, 1], that the picture holds what is asked for


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
        photograph: Whether the picture looks like a photograph without print, of which the guide, that
            decided alone, knows little.
        note: A remark of the source for the user, such as on what it left out; None: there is none.
        parts: What each source of a sum says; empty: there is one, and the logits are its own.
        units: Long [H, W], the number of the line of print that a cell belongs to, below 0 where there is
            none; None: lines aren't known.
        question: The guide's vector of the question, [QUESTION_WIDTH]; None: the guide didn't read it.
    """

    logits: Tensor
    confidence: float
    overview: float = 0.0
    unusual: float = 0.0
    matches: tuple[Match, ...] = ()
    printed: bool = False
    findings: tuple[Finding, ...] = ()
    by_cell: bool = False
    photograph: bool = False
    note: str | None = None
    parts: tuple[SourcePart, ...] = ()
    units: Tensor | None = None
    question: Tensor | None = None

    def best(self, least: float = LIKELY) -> tuple[Match, ...]:
        """Return the best match of each word of the question, if its likeness is at least `least`."""

        def rank(match: Match) -> tuple[bool, float]:  # "march", if it is printed, before "january"
            return match.likeness >= LIKELY and is_form(match.term, match.word), match.likeness

        best: dict[str, Match] = {}
        for match in self.matches:
            if match.likeness >= least:
                best[match.word] = max(best.get(match.word, match), match, key=rank)
        return tuple(best.values())

    @cached_property
    def recognised(self) -> bool:
        """Whether a word of the question was found on the picture, or another source found what it needs."""
        return bool(self.best()) or any(finding.probability >= FOUND for finding in self.findings)

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(match.word for match in self.matches))

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors, for caches."""
        parts = [part.logits for part in self.parts]
        return sum(one.nbytes for one in (self.logits, *parts, self.units, self.question) if one is not None)

    @property
    def general(self) -> bool:
        """Whether the question may be about no place: about all of the picture, or what stands out."""
        return max(self.overview, self.unusual) > SCOPE[0]

    def of_a_place(self) -> Coupling:
        """Return the same of a question that is about a place."""
        most = 1 - OUTRIGHT
        return replace(self, overview=min(self.overview, most), unusual=min(self.unusual, most))

    def to_dict(self) -> dict[str, object]:
        """Return all fields but the logits, as JSON values under the names of saved records."""
        return {
            "confidence": round(self.confidence, 4),
            "whole": round(self.overview, 4),  # the names in saved records
            "odd": round(self.unusual, 4),
            "printed": self.printed,
            "matches": [match._asdict() for match in self.matches],
        } | ({"findings": [finding._asdict() for finding in self.findings]} if self.findings else {})


def view(guide: Guide, picture: Tensor) -> GuidePage:
    """Return the guide's encoding of a picture, float [3, h, w] in [0, 1] of any size, at `encoded_size`."""
    return view_pages(guide, [picture])[0]


@torch.no_grad()
def view_pages(guide: Guide, pictures: Sequence[Tensor]) -> list[GuidePage]:
    """Return the guide's encodings of pictures, as of `view`; those of one size are encoded together."""
    scaled = [at_encoded_size(picture.to(guide.threshold.device)) for picture in pictures]
    pages: dict[int, GuidePage] = {}
    for group in _alike([tuple(picture.shape) for picture in scaled]):
        most = max(1, PIXELS_AT_ONCE // scaled[group[0]][0].numel())
        for part in (group[i : i + most] for i in range(0, len(group), most)):
            encoded = guide.encode(torch.stack([scaled[i] for i in part]))
            pages |= zip(part, encoded.split(), strict=True)
    sizes = [(picture.shape[-2], picture.shape[-1]) for picture in pictures]
    shares = map(even_share, pictures)
    return [
        pages[i]._replace(size=size, even=even)
        for i, (size, even) in enumerate(zip(sizes, shares, strict=True))
    ]


def even_share(picture: Tensor) -> float:
    """Return the share of px of a picture [3, h, w] in [0, 1] that are like those right of and below them.

    Much of what is drawn is of one colour; hardly anything that a camera sees. Every second px of every
    second row is read.
    """
    height, width = (side // 2 * 2 for side in picture.shape[-2:])
    if not height * width:
        return 1.0
    some = picture[..., :height, :width]
    one, right, below = some[..., ::2, ::2], some[..., ::2, 1::2], some[..., 1::2, ::2]
    change = torch.maximum((one - right).abs(), (one - below).abs()).amax(0)
    return float((change < ALIKE).float().mean())


def at_encoded_size(picture: Tensor) -> Tensor:
    """Return a picture [3, h, w] at the size at which the guide encodes it."""
    height, width = picture.shape[-2:]
    size = encoded_size(width, height)
    if size == (width, height):
        return picture
    mode = "bilinear" if size[0] < width else "bicubic"  # enlarged print stays sharp
    picture = F.interpolate(picture[None].float(), size[::-1], mode=mode, antialias=size[0] < width)[0]
    return picture.clamp(0, 1)


def _alike(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the indices of equal keys together, in the order of the first of each."""
    groups: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def encoded_size(width: int, height: int) -> tuple[int, int]:
    """Return the size (width, height) in px at which the guide encodes a picture of a size in px."""
    scale = min(ENLARGED, math.sqrt(ENLARGED_PIXELS / (width * height)), MAX_SIDE / max(width, height))
    if scale < MIN_ENLARGED:
        return fitted(width, height)
    return round(width * scale), round(height * scale)


def fitted(width: int, height: int) -> tuple[int, int]:
    """Return a size (width, height) in px, made smaller where it is more than the guide can encode."""
    scale = min(1.0, math.sqrt(MAX_PIXELS / (width * height)), MAX_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def fitted_pixels(image: Image, device: torch.device | None = None) -> Tensor:
    """Return an opened image as float [3, h, w], scaled down if it is larger than the guide can encode.

    It is scaled as bytes: texture and guide take up to 60 bytes of memory for each pixel.
    """
    size = fitted(*image.size)
    resized = image if size == image.size else image.resize(size, Resampling.BILINEAR)
    return float_pixels(resized, device)[0]


def seen_pixels(source: object, image: Image, device: torch.device | None = None) -> Tensor:
    """Return an image as a source of relevance reads it, float [3, h, w]: the guide a fitted one."""
    guided = isinstance(source, GuideSource)
    return fitted_pixels(image, device) if guided else float_pixels(image, device)[0]


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

    def view_all(self, pictures: Sequence[Tensor]) -> list[Any]:
        """Encode pictures at once, as `view` does one by one."""
        return list(view_pages(self.guide, pictures))

    def couple_all(
        self, views: Sequence[Any], questions: Sequence[str], grids: Sequence[tuple[int, int]]
    ) -> list[Coupling]:
        """Score pictures by a question each at once, as `couple` does one by one."""
        made: dict[int, Coupling] = {}
        keys = [(view.encoded, grid) for view, grid in zip(views, grids, strict=True)]
        for group in _alike(keys):
            pages = [views[i] for i in group]
            if all(page is pages[0] for page in pages):
                pages = pages[:1]
            most = max(1, PIXELS_AT_ONCE // math.prod(pages[0].encoded))
            for part in (range(i, min(i + most, len(group))) for i in range(0, len(group), most)):
                own = pages if len(pages) == 1 else [pages[i] for i in part]
                texts = [questions[group[i]] for i in part]
                couplings = couple_pages(self.guide, own, texts, grids[group[0]])
                made |= zip((group[i] for i in part), couplings, strict=True)
        return [made[i] for i in range(len(views))]


def couple(guide: Guide, page: GuidePage, question: str, grid: tuple[int, int]) -> Coupling:
    """Score the cells of a picture by a question, on a grid (H, W) of any shape that divides it evenly."""
    return couple_pages(guide, [page], [question], grid)[0]


@torch.no_grad()
def couple_pages(
    guide: Guide, pages: Sequence[GuidePage], questions: Sequence[str], grid: tuple[int, int]
) -> list[Coupling]:
    """Score the cells of pictures of one size by a question each, on one grid, at once.

    `pages` are as many as `questions`, or one for all of them.
    """
    every = [guide.terms_of(question) for question in questions]
    page = join_pages(pages)
    judged = fetched(guide.question(page, guide.tensors(every), grid))
    couplings = [_coupling(judged, i, one, page.encoded) for i, one in enumerate(every)]
    for i, coupling in enumerate(couplings):
        own = pages[i % len(pages)]
        if coupling.general and _shows_name(guide, own, questions[i]):
            coupling = coupling.of_a_place()
        wordless = float(judged.vocabulary[i]) < PHOTOGRAPH_WORDS
        couplings[i] = replace(coupling, photograph=wordless and own.even < MAX_EVEN)
    return couplings


def _shows_name(guide: Guide, page: GuidePage, question: str) -> bool:
    """Return whether a question's words are a name that is printed on a picture (`names_print`).

    Asked of the few questions that seem to be about no place; nothing is encoded for it.
    """
    search, wanted = guide.search(page, [question]), guide.terms_of(question)
    own = crop_places(search.cosines[0, : len(wanted.words)], page.encoded)
    maps = printed_probability(own, itself=True, strength=1.0)
    for row, (term, of) in enumerate(zip(wanted.others, wanted.stands_for, strict=True)):
        if is_form(term, wanted.words[of]):
            cosines = crop_places(search.others[0, row], page.encoded)
            maps[of] = torch.maximum(maps[of], printed_probability(cosines, itself=True, strength=1.0))
    reach = (2 * BESIDE[0] + 1, 2 * BESIDE[1] + 1)
    near = F.max_pool2d(maps[:, None], reach, 1, BESIDE)[:, 0]  # (T, h, w): a word stands near a place
    return names_print(
        wanted.words,
        lambda i: float(maps[i].max()) >= LIKELY,
        lambda i, j: float(torch.minimum(maps[i], near[j]).max()) >= FOUND,
    )


def fetched(judged: Judged) -> Judged:
    """Return the same on the CPU, by one transfer."""
    flat = torch.cat([part.flatten().float() for part in judged]).cpu()  # places are whole numbers below 2^24
    parts = flat.split([part.numel() for part in judged])
    return Judged(*(part.view(like.shape) for part, like in zip(parts, judged, strict=True)))


def _coupling(judged: Judged, i: int, terms: Terms, size: tuple[int, int]) -> Coupling:
    """Return the coupling of question `i` with a picture encoded at (height, width) px."""
    spots = _matches(judged, i, terms, size)
    recognised = any(match.likeness >= LIKELY for match in spots)
    confidence = probability(float(judged.present[i]), recognised) * readable(terms.words)
    if _colour_alone(spots, terms.words):
        confidence = min(confidence, OF_COLOUR_ALONE)
    overview, unusual = outright(judged.scope[i].tolist(), terms.words)
    printed = float(judged.vocabulary[i]) >= PRINTED_WORDS
    facts = (confidence, overview, unusual, spots, printed)
    return Coupling(judged.cells[i], *facts, by_cell=True, question=judged.vectors[i])


def _colour_alone(spots: Sequence[Match], words: Sequence[str]) -> bool:
    """Return whether of a coloured thing the colour was found, and nothing that says that it is the thing."""
    things = unnamed_by_colour(words)
    likely = [match for match in spots if match.likeness >= LIKELY]
    coloured = {match.word for match in likely if match.term == COLOUR_TERM.format(match.word)}
    printed = {match.word for match in likely if match.term != COLOUR_TERM.format(match.word)}
    return bool(things) and bool(coloured - printed) and printed.isdisjoint(things)


def probability(present: float, recognised: bool) -> float:
    """Return the confidence, in [0, 1], that a picture holds what is asked for, calibrated.

    `present`: the head's logit of that; `recognised`: a word of the question was found on the picture.
    """
    factor, offset, more = CALIBRATION
    return sigmoid(present * factor + offset + more * recognised)


def printed_probability(cosines: Tensor, itself: bool, strength: float) -> Tensor:
    """Return the probability that places show a term, from its cosines with them.

    `itself`: the term is a word of the question; else it has to do with one by `strength`, in (0, 1].
    """
    factor, offset = _printed_line(itself, strength)
    return torch.sigmoid(cosines.float() * factor + offset)


def printed_chance(cosine: float, itself: bool, strength: float) -> float:
    """`printed_probability` of one place."""
    factor, offset = _printed_line(itself, strength)
    return sigmoid(cosine * factor + offset)


def _printed_line(itself: bool, strength: float) -> tuple[float, float]:
    """Return the factor and offset of PRINTED for a term; arguments as of `printed_probability`."""
    return PRINTED["itself" if itself else "listed" if strength == 1 else "related"]


def is_form(term: str, word: str) -> bool:
    """Return whether a term is a word of a question, or another form of it: "forward" of "forwarded"."""
    return term == word or stem(term) == stem(word)


def sigmoid(logit: float) -> float:
    """Return the probability in [0, 1] of log odds."""
    return 0.5 * (1 + math.tanh(logit / 2))


@torch.no_grad()
def scope(guide: Guide, question: str) -> tuple[float, float]:
    """Return how far a question is about all of any picture, and how far about what stands out, each in [0,
    1].
    """
    words = terms(question).words
    (pair,) = guide.scope(guide.tensors([Terms(words, (), (), ())])).tolist()
    return outright(pair, words)


@torch.no_grad()
def question_vector(guide: Guide, question: str) -> Tensor:
    """Return the guide's vector of a question, float32 [QUESTION_WIDTH], without a picture."""
    tensors = guide.tensors([guide.terms_of(question)])
    return guide.reader(tensors, guide.vectors(tensors)[0]).pooled[0].float().cpu()


def outright(scope: Sequence[float], words: Sequence[str]) -> tuple[float, float]:
    """Return the scope of a question, `overview` and `unusual`, after what its words ask for outright."""
    overview, unusual = scope
    says_overview, says_unusual = outright_scope(words)
    if says_unusual:
        return min(overview, 1 - OUTRIGHT), max(unusual, OUTRIGHT)
    if says_overview:
        return max(overview, OUTRIGHT), min(unusual, 1 - OUTRIGHT)
    coloured = any(map(colours_of, words))  # "Is anything green?" names what it asks for
    return overview, min(unusual, 1 - OUTRIGHT) if coloured else unusual


def readable(words: Sequence[str]) -> bool:
    """Return whether a question has a content word with a character of ALPHABET; other scripts are not
    read.
    """
    content = [word for word in words if word not in STOP_WORDS] or words
    return any(letter.isalnum() and letter in ALPHABET for word in content for letter in word)


def matches(guide: Guide, page: GuidePage, question: str) -> tuple[Match, ...]:
    """Return the content words of a question and the terms that stand for them, each with its best place."""
    return couple(guide, page, question, (1, 1)).matches


def _matches(judged: Judged, i: int, terms: Terms, size: tuple[int, int]) -> tuple[Match, ...]:
    """Return the matches of question `i` on a picture encoded at (height, width) px."""
    words, others, stands_for, strengths = terms
    width, padded = -(-size[1] // PLACE[1]), judged.colour.shape[1]
    best, places = judged.best[i].tolist(), judged.best_at[i].tolist()
    colours, painted = judged.colour[i].tolist(), judged.colour_at[i].tolist()

    def middle(index: float) -> tuple[float, float]:
        place = divmod(int(index), width)
        y, x = ((at + 0.5) * px / side for at, px, side in zip(place, PLACE, size, strict=True))
        return min(1.0, y), min(1.0, x)

    listed = []
    for number, (word, group) in enumerate(zip(words, _groups(len(words), stands_for), strict=True)):
        if word in STOP_WORDS:
            continue
        for index in group:
            term, own = (*words, *others)[index], index < len(words)
            at = index if own else padded + index - len(words)
            strength = 1.0 if own else strengths[index - len(words)]
            likeness = printed_chance(best[at], is_form(term, word), strength)
            listed.append(Match(word, term, likeness, middle(places[at]), strength))
        if colours[number] > 0:
            term = COLOUR_TERM.format(word)
            listed.append(Match(word, term, colours[number], middle(painted[number])))
    return read_together(listed, size)


def read_together(listed: Sequence[Match], size: tuple[int, int]) -> tuple[Match, ...]:
    """Matches, likelier where words that follow each other in the question stand side by side in print.

    Small print is read word by word with doubt: "last" at 0.66 and "synced" at 0.62 beside it are both there.
    """
    best: dict[str, int] = {}  # of each word its likeliest form as printed
    for i, match in enumerate(listed):
        held = best.get(match.word)
        if is_form(match.term, match.word) and (held is None or match.likeness > listed[held].likeness):
            best[match.word] = i
    matches = list(listed)
    for one, other in pairwise(best.values()):
        a, b = listed[one], listed[other]
        down, across = (
            abs(p - q) * side / px for p, q, side, px in zip(a.place, b.place, size, PLACE, strict=True)
        )
        if min(a.likeness, b.likeness) >= FOUND and down <= BESIDE[0] and across <= BESIDE[1]:
            both = a.likeness * b.likeness
            both = both * TOGETHER / (both * TOGETHER + 1 - both)
            for i in (one, other):
                matches[i] = matches[i]._replace(likeness=max(matches[i].likeness, both))
    return tuple(matches)


def _groups(words: int, stands_for: tuple[int, ...]) -> list[list[int]]:
    """Return for each word its own index and those of the others that stand for it."""
    groups = [[index] for index in range(words)]
    for number, word in enumerate(stands_for):
        groups[word].append(words + number)
    return groups
