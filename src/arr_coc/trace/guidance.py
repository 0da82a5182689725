"""Guidance: what the guide read of a question on a page, word by word, and how sure it is.

    guidance = read_guidance(guide, page, question, coupling, (32, 32))
    guidance.says              "sure", "unsure", ...: a verdict of `guide.trust`
    guidance.sentence          "82%: the picture probably holds what is asked for"
    guidance.spots[0].heat     where the first word matches, float [H, W]

For each content word of the question that word, or one of the lexicon that stands for it: what fits best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.guide.coupling import COLOUR, LIKELY, Coupling, printed, within
from arr_coc.guide.guide import Guide, Page, Search
from arr_coc.guide.trust import GENERAL, sentence, verdict


@dataclass(frozen=True, eq=False)
class Spot:
    """Where a word of the question matches best.

    Attributes:
        word: of the question.
        term: what was found there: the word, or another that stands for it.
        likeness: in [0, 1], the probability that the best place shows the term.
        place: (y, x) of that place in shares of the picture's height and width.
        heat: float [H, W] in [0, 1], the most likeness in each cell, of the word and all that stands for it;
            empty of `Guidance.of`.
    """

    word: str
    term: str
    likeness: float
    place: tuple[float, float]
    heat: Tensor

    @property
    def label(self) -> str:
        """The word, and what stands for it if that is another and likely right: "seller → vendor"."""
        return self.word if self.term == self.word or self.likeness < LIKELY else f"{self.word} → {self.term}"


@dataclass(frozen=True, eq=False)
class Guidance:
    """What the guide says of one picture and one question; `guide.coupling.Coupling` has the numbers.

    Attributes:
        confidence: in [0, 1], the probability that the picture holds what is asked for.
        whole: in [0, 1], that the question is about all of the picture.
        odd: in [0, 1], that it asks for what stands out.
        spots: of each content word of the question, in order.
    """

    confidence: float
    whole: float
    odd: float
    spots: tuple[Spot, ...] = ()

    @property
    def says(self) -> str:
        """The verdict, as of the coupling that this is from."""
        return verdict(self.confidence, self.whole, self.odd, self._words, bool(self._likely))

    @property
    def sentence(self) -> str:
        """The verdict in words, with its confidence."""
        return sentence(self.says, self.confidence, self._words)

    @property
    def _words(self) -> tuple[str, ...]:
        """The content words of the question."""
        return tuple(spot.word for spot in self.spots)

    @property
    def matched(self) -> tuple[Spot, ...]:
        """Spots that are likely right; none of a question about no place."""
        return () if self.says in GENERAL else self._likely

    @property
    def _likely(self) -> tuple[Spot, ...]:
        """Spots that are likely right, whatever the question is about."""
        return tuple(spot for spot in self.spots if spot.likeness >= LIKELY)

    def to_dict(self) -> dict[str, Any]:
        """All but the heats, JSON-safe."""
        spots = [
            {"word": s.word, "term": s.term, "likeness": s.likeness, "place": list(s.place)}
            for s in self.spots
        ]
        return {"confidence": self.confidence, "whole": self.whole, "odd": self.odd, "spots": spots}

    @classmethod
    def of(cls, coupling: Coupling) -> Guidance:
        """What a coupling says, without heats: each content word with what fits best for it."""
        best = coupling.best(0.0)
        spots = tuple(Spot(m.word, m.term, m.likeness, m.place, heat=torch.zeros(0)) for m in best)
        return cls(coupling.confidence, coupling.whole, coupling.odd, spots)

    @classmethod
    def from_dict(cls, plain: dict[str, Any], heats: Tensor) -> Guidance:
        """Of what `to_dict` made, and heats [spots, H, W]."""
        pairs = zip(plain["spots"], heats, strict=True)
        spots = tuple(
            Spot(s["word"], s["term"], s["likeness"], (s["place"][0], s["place"][1]), heat)
            for s, heat in pairs
        )
        return cls(plain["confidence"], plain["whole"], plain["odd"], spots)


@torch.no_grad()
def read_guidance(
    guide: Guide, page: Page, question: str, coupling: Coupling, grid: tuple[int, int]
) -> Guidance:
    """What the guide read, from what it said.

    Args:
        guide: that said it.
        page: of the picture.
        question: as the guide was asked.
        coupling: its answer.
        grid: (H, W) cells of the heats.
    """
    (search,) = guide.search(page, [question])
    words = search.terms.words
    plain = Guidance.of(coupling)
    spots = tuple(
        replace(spot, heat=_heat(page, search, words.index(spot.word), spot.term, grid))
        for spot in plain.spots
    )
    return replace(plain, spots=spots)


def _heat(page: Page, search: Search, word: int, term: str, grid: tuple[int, int]) -> Tensor:
    """The likeness of a word of the question, or of the best that stands for it, in each cell: [H, W].

    Of the words that it is only related to, the one that matched best counts, `term`.
    """
    words, others, stands_for, strengths = search.terms
    bonds = enumerate(zip(others, stands_for, strengths, strict=True), len(words))
    rows = [(word, 1.0)]
    rows += [(i, bond) for i, (other, of, bond) in bonds if of == word and (bond == 1 or other == term)]
    if term == COLOUR.format(words[word]):
        colour = within(search.colours[word], page.size).float()
        return F.adaptive_max_pool2d(colour[None], grid)[0].cpu()
    maps = [printed(within(search.cosines[row], page.size), row == word, bond) for row, bond in rows]
    likeness = torch.stack(maps).amax(0)
    return F.adaptive_max_pool2d(likeness[None], grid)[0].clamp(0, 1).cpu()
