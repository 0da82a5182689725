"""The guide: from a picture and a question to the coupling of every place with the question.

guide = load_guide()
page = guide.page(picture)                 once per picture
guide.judge(page, ["What is the total?"])  then per question
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.choose.knowing import same_start
from arr_coc.guide.blocks import block_max, block_mean
from arr_coc.guide.colours import colour_maps, colours_of
from arr_coc.guide.eyes import Eyes, Sight, luminance
from arr_coc.guide.glossary import Glossary
from arr_coc.guide.head import Head, Judgement, PageEncoder
from arr_coc.guide.print_runs import print_runs
from arr_coc.guide.question import QuestionEncoder, Reading, Terms, definitions, terms
from arr_coc.guide.words import WordEncoder

SCALES = 3
"""Sizes at which a picture is read: as it is, at half and at a quarter of its size."""
MULTIPLE = 32
"""Sides of a picture are padded to multiples of this many px."""
SMALLEST = 128
"""And to this many at least: on narrower ones convolutions in bfloat16 read what nobody wrote on some."""


class Page(NamedTuple):
    """A picture as the guide holds it between questions.

    `prints` are vectors of print, [DIM, h/8, w/16] of the picture and the same of it at half and at a quarter
    of its size; `meanings` [MEANING, h/16, w/32] what it means; `colours` [12, h/16, w/32] which colours it
    shows (`colours.NAMES`); `features` [1, WIDTH, h/16, w/32] what else is on it; `size` (height, width) of
    the picture in px before it was padded; `runs` [h/16, w/4] its runs of print; `vocabulary` how many
    different common words are read on it.
    """

    prints: tuple[Tensor, ...]
    meanings: Tensor
    colours: Tensor
    features: Tensor
    size: tuple[int, int]
    runs: Tensor
    vocabulary: int


class Search(NamedTuple):
    """Where the words of a question stand.

    `own` [T, DIM] are the vectors of its own words; `cosines` [W, h/16, w/32] are those of these words, then
    of the others of its `terms`, with every place; `agreements` [T, h/16, w/32] those of their meanings;
    `colours` [T, h/16, w/32] how far each place shows the colour that a word names, 0 for other words.
    """

    terms: Terms
    own: Tensor
    cosines: Tensor
    agreements: Tensor
    colours: Tensor


class Guide(nn.Module):
    """Eyes that read print, vectors of words, and a head that joins them.

    Attributes:
        eyes: see `eyes`.
        words: see `words`.
        glossary: see `glossary`.
        sharpness: logarithm of what cosines are multiplied by where words compete.
    """

    def __init__(self) -> None:
        super().__init__()
        with same_start():
            self.eyes = Eyes()
            self.words = WordEncoder()
            self.glossary = Glossary()
            self.sharpness = nn.Parameter(torch.tensor(math.log(14.0)))
            self.scale = nn.Parameter(torch.tensor(math.log(12.0)))
            self.threshold = nn.Parameter(torch.tensor(0.6))
            self.reader = QuestionEncoder()
            self.pages = PageEncoder()
            self.head = Head()

    def likeness(self, cosine: Tensor) -> Tensor:
        """The logit that a slot shows a word, from the cosine of their vectors."""
        return self.scale.exp() * (cosine - self.threshold)

    def page(self, picture: Tensor) -> Page:
        """Look at a picture, float [3, h, w] in [0, 1], before any question."""
        picture = picture.contiguous()  # a channel's pixels side by side: many steps go channel by channel
        size = (picture.shape[-2], picture.shape[-1])
        down, right = (max(SMALLEST - side, -side % MULTIPLE) for side in size)
        pad = (0, right, 0, down)
        picture = F.pad(picture[None].float(), pad, mode="replicate")[0] if any(pad) else picture.float()
        return self.compose(picture, self.look(picture))._replace(size=size)

    def look(self, picture: Tensor) -> list[Sight]:
        """What the eyes see in a picture [3, h, w] with sides of whole MULTIPLEs, and in it at half and at a
        quarter of its size: larger print is read there.
        """
        light = luminance(picture[None])
        sights = [self.eyes(light)]
        for _ in range(SCALES - 1):
            light = _half(light)
            sights.append(self.eyes(light))
        return sights

    def compose(self, picture: Tensor, sights: Sequence[Sight]) -> Page:
        """What is known of a picture from what the eyes saw in it, and its colours."""
        prints = tuple(sight.print[0] for sight in sights)
        light = luminance(picture[None])
        meanings, vocabulary = self.glossary(prints, light, self.likeness)
        features = self.pages(picture[None], [sight.features for sight in sights], meanings)
        size = (picture.shape[-2], picture.shape[-1])
        colours, runs = colour_maps(picture), print_runs(light)
        return Page(prints, meanings, colours, features, size, runs, vocabulary)

    def judge(self, page: Page, questions: Sequence[str]) -> Judgement:
        """Judge every place of a page for some questions."""
        return self.weigh(page, self.search(page, questions))

    def search(self, page: Page, questions: Sequence[str]) -> list[Search]:
        """Look for the words of some questions on a page."""
        every = [terms(question) for question in questions]
        vectors = self.words([word for t in every for word in (*t.words, *t.others)])
        parts = vectors.split([len(t.words) + len(t.others) for t in every])
        return [
            Search(
                t,
                part[: len(t.words)],
                self._cosines(page, part),
                self._agreements(page, t),
                _colours(page, t),
            )
            for t, part in zip(every, parts, strict=True)
        ]

    def weigh(self, page: Page, searches: Sequence[Search]) -> Judgement:
        """Judge every place of a page from where the words of some questions stand."""
        own = [search.own for search in searches]
        readings = self.reader.read([search.terms.words for search in searches], own)
        return self.head(page.features, readings, [self.maps(search) for search in searches])

    def read(self, questions: Sequence[Sequence[str]]) -> list[Reading]:
        """Read questions of normal words, at least one, with no page at hand."""
        vectors = self.words([word for words in questions for word in words])
        return self.reader.read(questions, vectors.split([len(words) for words in questions]))

    def maps(self, search: Search) -> Tensor:
        """The maps of likeness of a question's words, [T, MAPS, H, W] in [0, 1]; see `head.MAPS`."""
        count = len(search.own)
        direct, others = search.cosines[:count], search.cosines[count:]
        places = torch.tensor(search.terms.stands_for, device=others.device, dtype=torch.long)
        strengths = torch.tensor(search.terms.strengths, device=others.device)
        listed, related = strengths == 1, strengths < 1
        synonym = _gathered(others[listed], places[listed], torch.full_like(direct, -1.0))
        maps = [*self._likenesses(direct), *self._likenesses(synonym)]
        for likeness in self._likenesses(others[related]):
            weighed = likeness * strengths[related][:, None, None].to(likeness.dtype)
            maps.append(_gathered(weighed, places[related], torch.zeros_like(direct)))
        agreements = search.agreements.to(direct.dtype)
        maps += [agreements, _relative(agreements), search.colours.to(direct.dtype)]
        return torch.stack(maps, 1)

    def _likenesses(self, cosine: Tensor) -> tuple[Tensor, Tensor]:
        """How likely each place shows each word, and how near it comes to the page's best: [W, H, W] each."""
        if not len(cosine):
            return cosine, cosine
        return torch.sigmoid(self.likeness(cosine)), _relative(cosine)

    def _agreements(self, page: Page, terms: Terms) -> Tensor:
        """How well each word of a question agrees in meaning with each place, [T, h/16, w/32] in [0, 1]."""
        meant = definitions(terms.words).to(page.meanings)
        return torch.einsum("tm,mhw->thw", meant, page.meanings).clamp(0, 1)

    def _cosines(self, page: Page, words: Tensor) -> Tensor:
        """How well each word agrees with each place, [W, DIM] -> [W, h/16, w/32]: the best of all sizes."""
        near, half, quarter = (torch.einsum("wd,dhx->whx", words, each) for each in page.prints)
        height, width = page.features.shape[-2:]
        quarter = quarter.repeat_interleave(2, -2).repeat_interleave(2, -1)[:, :height, :width]
        return torch.maximum(block_max(near, (2, 2)), torch.maximum(half[:, :height, :width], quarter))


def _colours(page: Page, terms: Terms) -> Tensor:
    """Where the colours stand that the words of a question name, [T, h/16, w/32] in [0, 1]."""
    maps = page.colours.new_zeros(len(terms.words), *page.colours.shape[1:])
    for i, word in enumerate(terms.words):
        if colours := colours_of(word):
            maps[i] = page.colours[list(colours)].amax(0)
    return maps


def _relative(cosine: Tensor) -> Tensor:
    """How near each place comes to the page's best, if that is any good: [W, H, W] -> [W, H, W] in [0, 1]."""
    top = cosine.amax((1, 2), keepdim=True)
    return torch.exp(12 * (cosine - top)) * torch.sigmoid(12 * (top - 0.3))


def _gathered(others: Tensor, places: Tensor, maps: Tensor) -> Tensor:
    """Maps of words [T, H, W], with the best of the others [n, H, W] that stand for each."""
    return maps.scatter_reduce(0, places[:, None, None].expand_as(others), others, "amax")


def _half(light: Tensor) -> Tensor:
    """A picture at half its size, with sides padded to what the eyes need."""
    half = block_mean(light, (2, 2))
    pad = (0, -half.shape[-1] % 16, 0, -half.shape[-2] % 8)
    return F.pad(half, pad, mode="replicate") if any(pad) else half
