"""Evidence beside a choice: which boxes of the truth were kept, and how much of them all.

    scored = score(boxes, allocation, picture.size)
    scored.hits, scored.recall        (True, False), 0.75

Cells of a box are those of `data.evidence`, the one rule. A box is a hit if all of its cells were kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.guide.coupling import COLOUR_TERM, LIKELY, Coupling, crop_places, printed_probability
from arr_coc.guide.guide import Guide, GuidePage, Search
from arr_coc.guide.trust import GENERAL, sentence, verdict

if TYPE_CHECKING:
    from arr_coc.choose.allocation import Allocation
    from arr_coc.data.record import Box

# Guidance: what the guide read of a question on a page, word by word, and how sure it is.
#
#     guidance = read_guidance(guide, page, question, coupling, (32, 32))
#     guidance.says              "sure", "unsure", ...: a verdict of `guide.trust`
#     guidance.sentence          "82%: the picture probably holds what is asked for"
#     guidance.spots[0].heat     where the first word matches, float [H, W]
#
# For each content word of the question that word, or one of the lexicon that stands for it: what fits best.


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
        return cls(coupling.confidence, coupling.overview, coupling.unusual, spots)

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
    guide: Guide, page: GuidePage, question: str, coupling: Coupling, grid: tuple[int, int]
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


def _heat(page: GuidePage, search: Search, word: int, term: str, grid: tuple[int, int]) -> Tensor:
    """The likeness of a word of the question, or of the best that stands for it, in each cell: [H, W].

    Of the words that it is only related to, the one that matched best counts, `term`.
    """
    words, others, stands_for, strengths = search.terms
    bonds = enumerate(zip(others, stands_for, strengths, strict=True), len(words))
    rows = [(word, 1.0)]
    rows += [(i, bond) for i, (other, of, bond) in bonds if of == word and (bond == 1 or other == term)]
    if term == COLOUR_TERM.format(words[word]):
        colour = crop_places(search.colours[word], page.size).float()
        return F.adaptive_max_pool2d(colour[None], grid)[0].cpu()
    maps = [
        printed_probability(crop_places(search.cosines[row], page.size), row == word, bond)
        for row, bond in rows
    ]
    likeness = torch.stack(maps).amax(0)
    return F.adaptive_max_pool2d(likeness[None], grid)[0].clamp(0, 1).cpu()


class Scored(NamedTuple):
    """The evidence boxes of a question and what a choice kept of them.

    Attributes:
        boxes: (x0, y0, x1, y1) in px.
        cells: per box its cells in raster order; none of a box outside of the image.
        hits: per box whether all of its cells were kept.
        recall: the share of the cells of all boxes that were kept; None where there are none.
    """

    boxes: tuple[Box, ...]
    cells: tuple[tuple[int, ...], ...]
    hits: tuple[bool, ...]
    recall: float | None

    @property
    def text(self) -> str:
        """In words: "evidence: 5 of 6 cells kept (83 %)"; "" where there is none."""
        if self.recall is None:
            return ""
        every = len({cell for cells in self.cells for cell in cells})
        return f"evidence: {round(self.recall * every)} of {every} cells kept ({self.recall:.0%})"


def score(boxes: Sequence[Box], allocation: Allocation, size: tuple[int, int]) -> Scored:
    """Compare boxes of one image with the cells that were kept of it.

    Args:
        boxes: in px of the image.
        allocation: of one frame.
        size: (width, height) of the image.
    """
    if not boxes:
        return Scored((), (), (), None)
    from arr_coc.data.evidence import evidence_cells  # with the readers of all data sets

    kept = set(allocation.keep.tolist())
    _, height, width = allocation.grid
    cells = tuple(
        tuple(evidence_cells([box], (height, width), size).flatten().nonzero().flatten().tolist())
        for box in boxes
    )
    every = {cell for one in cells for cell in one}
    hits = tuple(bool(one) and kept.issuperset(one) for one in cells)
    return Scored(tuple(boxes), cells, hits, len(every & kept) / len(every) if every else None)


def check_boxes(boxes: Sequence[Box]) -> None:
    """Check that boxes have an inside.

    Raises:
        ValueError: one has none, or is no four finite numbers.
    """
    for box in boxes:
        if len(box) != 4 or not all(map(math.isfinite, box)) or not (box[0] < box[2] and box[1] < box[3]):
            raise ValueError(f"the evidence box {tuple(box)} must be x0, y0, x1, y1 with x0 < x1 and y0 < y1")


def scaled(boxes: Sequence[Box], before: tuple[int, int], after: tuple[int, int]) -> tuple[Box, ...]:
    """Boxes of an image of one size (width, height), in px of the same at another."""
    x, y = (new / old for new, old in zip(after, before, strict=True))
    return tuple((x0 * x, y0 * y, x1 * x, y1 * y) for x0, y0, x1, y1 in boxes)
