"""Trust: how far the balancer follows the guide, from what the guide says of itself.

    shares(coupling)   how sure, odd, whole, dense and lost a question is; they add up to 1
    start(coupling)    the gates and tensions that a balancer starts from: the shares' mean of STANCES

| question | kind | effect |
|---|---|---|
| "What is the total?", and it is there | sure | the participatory map alone ranks; the others break ties |
| "What is unusual here?" | odd | saliency leads |
| "Describe the image." | whole | information and even coverage; "auto" spends four times as much |
| "What is the formula?", and no such word is printed | dense | information leads: much is inside such cells |
| what isn't there or can't be read | lost | the others count too, a tenth for coverage; "auto" is doubled |

A trained allocator decides by itself where a question is about a place, and leaves the others to the guide
(`is_general`). Where a question is lost and a base model is at hand, its own first layers are asked, too.
Fixed, untrained; a policy net that is trained adds to it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from arr_coc.choose.balancing import MAX_EXPLORE
from arr_coc.choose.layer import Prior
from arr_coc.guide.coupling import Coupling, scope
from arr_coc.guide.guide import Guide
from arr_coc.guide.question import terms

TIE = 0.005
"""Gate of a map that only breaks ties: it moves a logit by at most 0.02."""
EXPLORE = MAX_EXPLORE / 2
"""Share of a budget for coverage at the neutral exploit tension. By the tensions of STANCES that is none if
sure, a tenth if odd, dense or lost, half if the question is about everything.

On validation pages a quarter for coverage, and the mixture of an untrained balancer, kept a sixth less of the
evidence of questions with little confidence than the guide alone: even where it is lost it knows best.
"""
SURE = 0.5
"""Confidence from which the guide is fully trusted, and the one threshold of what is said of it: below it the
cells are spread more widely, the more the lower it is."""
SCOPE: tuple[float, float] = (0.3, 0.7)
"""The same of `whole` and `odd`."""
DENSE = frozenset(
    "code diagram drawing equation equations expression figure formula formulas handwriting inscription "
    "passage print script snippet text writing".split()
)
"""What is known by how much is inside its cells, whatever is printed there."""
READING = frozenset("copy extract ocr read recite say says transcribe transcription translate".split())
"""Verbs of questions for print, as opposed to a description of it."""
SENTENCES = {
    "sure": "the picture probably holds what is asked for",
    "unsure": "the picture may not hold what is asked for, so the cells are spread more widely",
    "nothing": "no word of the question was recognised on the picture, so the cells are spread more widely",
    "dense": "no word of the question was recognised on the picture, so the cells are those that hold most",
    "unread": "the guide reads Latin script alone and can't read the question, so the cells are spread more "
    "widely",
    "whole": "the question is about the whole picture, so the cells are spread over it",
    "odd": "the question asks for what stands out, so the most salient cells are kept",
}
"""What is said of each verdict, in a sentence."""
GENERAL = frozenset({"whole", "odd"})
"""Verdicts about questions for no place: words that match and confidence say nothing of them."""
PASSED_OVER = "the guide reads Latin script alone and passed over the words of the question in another"
"""What is said beside a verdict where some words of a question are in another script."""


class Stance(NamedTuple):
    """What a kind of question calls for: gates of the three maps, and the three tensions, each in [0, 1]."""

    information: float
    perspectival: float
    participatory: float
    compress: float
    exploit: float
    focus: float


STANCES = {
    "sure": Stance(TIE, TIE, 1.0, compress=0.5, exploit=1.0, focus=0.5),
    "odd": Stance(0.05, 1.0, 0.1, compress=0.5, exploit=0.8, focus=0.5),
    "whole": Stance(0.5, 0.1, TIE, compress=0.25, exploit=0.0, focus=0.5),
    "dense": Stance(1.0, 0.1, 0.4, compress=0.375, exploit=0.8, focus=0.5),
    "lost": Stance(0.15, 0.15, 1.0, compress=0.375, exploit=0.8, focus=0.5),
}


class Shares(NamedTuple):
    """How far a question is of each kind, each in [0, 1]; they add up to 1."""

    sure: float
    odd: float
    whole: float
    dense: float
    lost: float


def shares(coupling: Coupling) -> Shares:
    """The kinds of a question: its scope goes first, for what it asks for needs not be printed."""
    whole = _ramp(coupling.whole, *SCOPE)
    odd = (1 - whole) * _ramp(coupling.odd, *SCOPE)
    local = 1 - whole - odd
    dense = local * _unprinted(coupling)
    sure = (local - dense) * _ramp(coupling.confidence, 0.0, SURE)
    return Shares(sure, odd, whole, dense, local - dense - sure)


def _unprinted(coupling: Coupling) -> float:
    """How unlikely it is that any word of a question is printed that has none but those of DENSE; else 0."""
    if not coupling.matches or not all(match.word in DENSE for match in coupling.matches):
        return 0.0
    # A word that is merely related, as "theorem" to "formula", says nothing of what is printed.
    return 1 - max(match.likeness for match in coupling.matches if match.strength == 1)


def is_general(guide: Guide, question: str) -> bool:
    """Whether a question is about all of a picture or what stands out in it, rather than about a place.

    No trained allocator has met such questions: boxes and answers teach places.
    """
    whole, odd = scope(guide, question)
    return max(_ramp(whole, *SCOPE), _ramp(odd, *SCOPE)) > 0.5


def is_transcription(guide: Guide, question: str) -> bool:
    """Whether a question asks for all that is printed ("Read the page aloud."), so that attention has to move
    over the whole page while it is answered, and no fixed set of cells will do.
    """
    return not READING.isdisjoint(terms(question).words) and is_general(guide, question)


def start(coupling: Coupling) -> Tensor:
    """Gates and tensions before the sigmoid, [6], for `AdaptiveTensionBalancer.mix`."""
    stances = torch.tensor([STANCES[name] for name in Shares._fields], dtype=torch.float32)
    return torch.logit(torch.tensor(shares(coupling), dtype=torch.float32) @ stances, eps=1e-4)


def prior(coupling: Coupling) -> Prior:
    """Where a balancer starts that follows the guide as far as it trusts itself."""
    return Prior(start(coupling), EXPLORE, coupling.printed)


def verdict(confidence: float, whole: float, odd: float, words: Sequence[str], recognised: bool) -> str:
    """What the guide makes of a question and a picture: one of SENTENCES.

    Args:
        confidence: of a `Coupling`, like the next two.
        whole: as there.
        odd: as there.
        words: the content words of the question.
        recognised: whether one of them was, on the picture.
    """
    middle = sum(SCOPE) / 2
    if whole > middle:
        return "whole"
    if odd > middle:
        return "odd"
    if words and all(map(in_other_script, words)):
        return "unread"
    if words and not recognised and DENSE.issuperset(words):
        return "dense"
    if confidence >= SURE:
        return "sure"
    return "unsure" if recognised else "nothing"


def verdict_of(coupling: Coupling) -> str:
    """The verdict of a coupling."""
    c = coupling
    return verdict(c.confidence, c.whole, c.odd, c.words, bool(c.best()))


def sentence(kind: str, confidence: float, words: Sequence[str] = ()) -> str:
    """What is said of a verdict wherever one is shown: its confidence, and what follows from it."""
    numbered = kind not in (*GENERAL, "unread")
    parts = [f"{confidence:.0%}: {SENTENCES[kind]}" if numbered else SENTENCES[kind]]
    return "; ".join(parts + _passed_over(kind, words))


def note(coupling: Coupling) -> str | None:
    """What must be said beside an allocation; None where the guide knows its way."""
    kind = verdict_of(coupling)
    parts = [] if kind in ("sure", *GENERAL) else [SENTENCES[kind]]
    return "; ".join(parts + _passed_over(kind, coupling.words)) or None


def _passed_over(kind: str, words: Sequence[str]) -> list[str]:
    """The remark about words in another script, where there are some and the verdict says nothing of them."""
    return [PASSED_OVER] if kind != "unread" and any(map(in_other_script, words)) else []


def in_other_script(word: str) -> bool:
    """Whether a word has letters, and none of them is Latin."""
    letters = [letter for letter in word if letter.isalpha()]
    return bool(letters) and not any("LATIN" in unicodedata.name(letter, "") for letter in letters)


def blend(coupling: Coupling, own: Tensor) -> Tensor:
    """Participatory logits [H, W] of guide and base model: the model's own look by the share of `lost`."""
    return torch.lerp(coupling.logits.to(own), own, shares(coupling).lost)


def _ramp(value: float, low: float, high: float) -> float:
    """0 up to `low`, 1 from `high` on, linear between."""
    return min(1.0, max(0.0, (value - low) / (high - low)))
