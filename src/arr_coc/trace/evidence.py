"""What is shown with a choice of cells: the evidence kept, and the guide's record of the question.

scored = score(boxes, allocation, picture.size)
scored.hits, scored.recall        (True, False), 0.75
guidance = read_guidance(guide, page, question, coupling, (32, 32))
guidance.sentence                 "82%: the picture probably holds what is asked for"
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.data.evidence import evidence_cells
from arr_coc.data.record import Box
from arr_coc.guide.coupling import COLOUR_TERM, FOUND, LIKELY, Coupling, is_form, printed_probability
from arr_coc.guide.guide import Guide, GuidePage, Search, crop_places
from arr_coc.guide.question import Terms
from arr_coc.guide.trust import GENERAL, sentence, verdict
from arr_coc.pixels.page import PrintedPage
from arr_coc.pixels.units import unit_evidence

OUTLINED, MOST_OUTLINED = 0.5, 3  # score from which a unit is outlined, and how many are at most


@dataclass(frozen=True, eq=False)
class Spot:
    """The best match of a question's word in a picture."""

    word: str  # of the question
    term: str  # what matched: the word or a related one
    likeness: float  # probability in [0, 1] that the place shows the term
    place: tuple[float, float]  # (y, x) in shares of the picture's height and width
    heat: Tensor  # float [H, W] in [0, 1], the highest likeness in each cell; empty from `Guidance.of`

    @property
    def label(self) -> str:
        """The word, and a likely related term that matched in its place: "seller → vendor"."""
        return self.word if self.term == self.word or self.likeness < LIKELY else f"{self.word} → {self.term}"

    @property
    def told(self) -> str:
        """Its likeness for users, in words where it isn't as likely as not."""
        return f"{self.likeness:.2f}" if self.likeness >= FOUND else "not found"


@dataclass(frozen=True, eq=False)
class Guidance:
    """The guide's record of one picture and question: a summary of `guide.coupling.Coupling`."""

    confidence: float  # probability in [0, 1] that the picture holds what is asked for
    whole: float  # that the question is about all of the picture
    odd: float  # that it asks for what stands out
    spots: tuple[Spot, ...] = ()  # of each content word of the question, in order

    @property
    def says(self) -> str:
        """What the finding amounts to: a key of `trust.SENTENCES`, such as "sure" or "unread"."""
        likely = [spot.word for spot in self._likely]
        return verdict(self.confidence, self.whole, self.odd, self._words, bool(likely), likely)

    @property
    def sentence(self) -> str:
        """This finding as a sentence for users, with the confidence where the verdict has one."""
        return sentence(self.says, self.confidence, self._words)

    @property
    def _words(self) -> tuple[str, ...]:
        """The content words of the question."""
        return tuple(spot.word for spot in self.spots)

    @property
    def matched(self) -> tuple[Spot, ...]:
        """The likely spots; none if the question is about no place."""
        return () if self.says in GENERAL else self._likely

    @property
    def _likely(self) -> tuple[Spot, ...]:
        """The likely spots, whatever the question is about."""
        return tuple(spot for spot in self.spots if spot.likeness >= LIKELY)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, without the heat maps of the words."""
        spots = [
            {"word": s.word, "term": s.term, "likeness": s.likeness, "place": list(s.place)}
            for s in self.spots
        ]
        return {"confidence": self.confidence, "whole": self.whole, "odd": self.odd, "spots": spots}

    @classmethod
    def of(cls, coupling: Coupling) -> Guidance:
        """Return the record of what the guide found (`Coupling`), without the heat maps of the words."""
        best = coupling.best(0.0)
        spots = tuple(Spot(m.word, m.term, m.likeness, m.place, heat=torch.zeros(0)) for m in best)
        return cls(coupling.confidence, coupling.overview, coupling.unusual, spots)

    @classmethod
    def from_dict(cls, plain: dict[str, Any], heats: Tensor) -> Guidance:
        """Return the record from a result of `to_dict` and the words' heat maps, [spots, H, W] in [0, 1]."""
        pairs = zip(plain["spots"], heats, strict=True)
        spots = tuple(
            Spot(s["word"], s["term"], s["likeness"], (s["place"][0], s["place"][1]), heat)
            for s, heat in pairs
        )
        return cls(plain["confidence"], plain["whole"], plain["odd"], spots)


@torch.no_grad()
def read_guidance(
    guide: Guide, page: GuidePage | None, question: str, coupling: Coupling, grid: tuple[int, int]
) -> Guidance:
    """Return the record of a coupling with a heat map of each content word on a grid (H, W).

    `page` is the guide's encoding of the picture; without one, where other sources found the words, heat is
    0.
    """
    if page is None:
        plain = Guidance.of(coupling)
        return replace(plain, spots=tuple(replace(spot, heat=torch.zeros(grid)) for spot in plain.spots))
    search, wanted = guide.search(page, [question]), guide.terms_of(question)
    plain = Guidance.of(coupling)
    spots = tuple(
        replace(spot, heat=_heat(page, search, wanted, wanted.words.index(spot.word), spot.term, grid))
        for spot in plain.spots
    )
    return replace(plain, spots=spots)


def _heat(
    page: GuidePage, search: Search, wanted: Terms, word: int, term: str, grid: tuple[int, int]
) -> Tensor:
    """Return the highest likeness of a word or its synonyms in each cell [H, W]; of related words, `term`
    alone.
    """
    words, others, stands_for, strengths = wanted
    bonds = enumerate(zip(others, stands_for, strengths, strict=True), len(words))
    rows = [(word, 1.0)]
    rows += [(i, bond) for i, (other, of, bond) in bonds if of == word and (bond == 1 or other == term)]
    if term == COLOUR_TERM.format(words[word]):
        colour = crop_places(search.colours[0, word], page.encoded).float()
        return F.adaptive_max_pool2d(colour[None], grid)[0].cpu()
    cosines = crop_places(torch.cat((search.cosines[0, : len(words)], search.others[0])), page.encoded)
    every = (*words, *others)
    maps = [printed_probability(cosines[row], is_form(every[row], words[word]), bond) for row, bond in rows]
    likeness = torch.stack(maps).amax(0)  # over terms: [rows, h, w] -> [h, w]
    return F.adaptive_max_pool2d(likeness[None], grid)[0].clamp(0, 1).cpu()


class EvidenceScore(NamedTuple):
    """The evidence boxes of a question and what a choice kept of them."""

    boxes: tuple[Box, ...]  # (x0, y0, x1, y1) in px
    cells: tuple[tuple[int, ...], ...]  # per box its cells in raster order; () outside of the image
    hits: tuple[bool, ...]  # per box whether all of its cells were kept
    recall: float | None  # kept share of all boxes' cells; None without boxes

    @property
    def text(self) -> str:
        """In words: "evidence: 5 of 6 cells kept (83 %)"; "" if there is none."""
        if self.recall is None:
            return ""
        every = len({cell for cells in self.cells for cell in cells})
        return f"evidence: {round(self.recall * every)} of {every} cells kept ({self.recall:.0%})"


def score(boxes: Sequence[Box], allocation: Allocation, size: tuple[int, int]) -> EvidenceScore:
    """Compare `boxes`, in px of an image of `size` (width, height), with an allocation of one frame."""
    if not boxes:
        return EvidenceScore((), (), (), None)
    kept = set(allocation.keep.tolist())
    _, height, width = allocation.grid
    cells = tuple(
        tuple(evidence_cells([box], (height, width), size).flatten().nonzero().flatten().tolist())
        for box in boxes
    )
    every = {cell for one in cells for cell in one}
    hits = tuple(bool(one) and kept.issuperset(one) for one in cells)
    return EvidenceScore(tuple(boxes), cells, hits, len(every & kept) / len(every) if every else None)


def likely_units(image: Image.Image, record: Allocation, page: PrintedPage | None = None) -> list[Box]:
    """Return the boxes to outline in px of a picture, best first: rows, lines or things likely meant.

    There is none where cells are kept for what they hold, as for an overview. `page` as in `unit_evidence`.
    """
    if float(record.weights[0]) >= min(OUTLINED, float(record.weights[1:].max())):
        return []
    likely = [one for one in unit_evidence(image, record, page) if one.score >= OUTLINED]
    return [one.box for one in likely[:MOST_OUTLINED]]


def check_boxes(boxes: Sequence[Box]) -> None:
    """Raise a ValueError for a box that is empty or isn't four finite numbers."""
    for box in boxes:
        if len(box) != 4 or not all(map(math.isfinite, box)) or not (box[0] < box[2] and box[1] < box[3]):
            raise ValueError(f"the evidence box {tuple(box)} must be x0, y0, x1, y1 with x0 < x1 and y0 < y1")


def scaled(boxes: Sequence[Box], before: tuple[int, int], after: tuple[int, int]) -> tuple[Box, ...]:
    """Boxes rescaled from an image of size `before` (width, height) to size `after`."""
    x, y = (new / old for new, old in zip(after, before, strict=True))
    return tuple((x0 * x, y0 * y, x1 * x, y1 * y) for x0, y0, x1, y1 in boxes)
