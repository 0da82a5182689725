"""How far a source of relevance is to be trusted with a question, and what users are told of that.

| question | verdict | told |
|---|---|---|
| "What is the total?", and it is there | sure | that the picture probably holds it |
| "What is unusual here?" | unusual | that the most salient cells are kept, or that much stands out |
| "Describe the image." | overview | that cells are spread over it |
| "Read the formula.", and no such word is printed | dense | that the cells are those that hold most |
| not there, or not readable | unsure, nothing, unread | so, and that cells are spread more widely |

What follows for the cells is the balance's to say (`relevance.balance`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from arr_coc.choose.balancing import MAX_EXPLORE
from arr_coc.choose.rarity import standing_out
from arr_coc.guide.coupling import LIKELY, SCOPE, Coupling, scope
from arr_coc.guide.guide import Guide
from arr_coc.guide.lexicon import akin
from arr_coc.guide.question import terms
from arr_coc.guide.wording import is_reading

# Share of a budget for coverage at the neutral exploit tension, of a question about no place.
EXPLORE = MAX_EXPLORE / 2
SURE = 0.5  # confidence from which the guide is fully trusted; the lower below it, the wider the spread
# How far a few cells stand out (`standing_out`) for a picture to have something unusual. Measured of drawn
# scenes with something odd: 0.5 to 1; of busy streets 0.02 to 0.03.
PEAK: tuple[float, float] = (0.1, 0.5)
# Things that show in dense cells, whatever is printed there.
DENSE = frozenset(
    "code diagram drawing equation equations expression figure formula formulas handwriting inscription "
    "passage print script snippet text writing".split()
)
# Of these, what any print is: "the small text" is found by the guide, "the small text in the formula" is not.
MERE_PRINT = frozenset("inscription passage print text writing".split())
MANNER = frozenset(  # words that say how such a thing is asked for, and nothing of what it is
    "displayed exact exactly faint find fine given little locate long printed see short shown small tiny "
    "whole written".split()
)
# Words for what is done with a formula, which alone, as in "Simplify.", ask for one; for what else is done
# with such a thing or asked of it; and for what follows it: "in words", "right". Words akin to the first two
# count as well.
WORKING_OUT = frozenset(
    "calculate compute derive differentiate evaluate integrate prove simplify solve".split()
)
DOING = WORKING_OUT | frozenset(
    "balance check convert copy correct describe expand explain express factor give interpret kind latex "
    "meaning name render rewrite source spell turn type typeset understand value verify work write".split()
)
AFTERWARDS = frozenset(
    "aloud answer correct english errors image latex markdown mean means page picture plain python result "
    "right show shown step steps true words working".split()
)
MATHS = frozenset("equation formula integral polynomial math maths theorem".split())
TRANSCRIPTION_VERBS = frozenset(
    "copy extract ocr read recite say says transcribe transcription translate".split()
)
SENTENCES = {
    "sure": "the picture probably holds what is asked for",
    "unsure": "the picture may not hold what is asked for, so the cells are spread more widely",
    "nothing": "no word of the question was recognised on the picture, so the cells are spread more widely",
    "dense": "no word of the question was recognised on the picture, so the cells are those that hold most",
    "unread": "the guide reads Latin script alone and can't read the question, so the cells are spread more "
    "widely",
    "overview": "the question is about the whole picture, so the cells are spread over it",
    "unusual": "the question asks for what stands out, so the most salient cells are kept",
}
# The same in few words.
BADGES = {
    "sure": "Probably here",
    "unsure": "Perhaps not here",
    "nothing": "No word recognised",
    "dense": "No word recognised",
    "unread": "Not read",
    "overview": "The whole picture",
    "unusual": "What stands out",
}
GENERAL = frozenset({"overview", "unusual"})  # verdicts about questions for no place
# Remark for a question about what stands out where much does.
BUSY = "much in the picture stands out as far as anything else, so cells all over it are kept, too"
# Remark for a question about a place on a photograph, of whose evidence the guide keeps less than of others.
PHOTOGRAPH = 'the guide is weak on photographs: a detector knows where things are (relevance="ground:FOLDER")'
# Remark for a question with some words in another script.
PASSED_OVER = "the guide reads Latin script alone and passed over the words of the question in another"


class Shares(NamedTuple):
    """How much a question is of each kind, each in [0, 1]; they add up to 1."""

    sure: float
    unusual: float
    busy: float
    overview: float
    dense: float
    not_found: float


def shares(coupling: Coupling, salient: Tensor | None = None) -> Shares:
    """Return how much a question is of each kind, from what the guide finds about it (`Coupling`).

    Questions about the whole picture are told first, for they need no printed word. `salient` [1, H, W] is
    the map of what is rare, if it was made (`wants_rarity`); None: something is taken to stand out.
    """
    overview = _ramp(coupling.overview, *SCOPE)
    odd = (1 - overview) * _ramp(coupling.unusual, *SCOPE)
    unusual = odd * _peak(salient)
    local = 1 - overview - odd
    trusted = _ramp(coupling.confidence, 0.0, SURE)
    dense = local * _unprinted(coupling, trusted)
    sure = (local - dense) * trusted
    return Shares(sure, unusual, odd - unusual, overview, dense, local - dense - sure)


def wants_rarity(coupling: Coupling) -> bool:
    """Return whether choosing for this question needs a map of what is rare in the picture."""
    return coupling.unusual > SCOPE[0] or bool(dense_things(coupling.words))


def _peak(salient: Tensor | None) -> float:
    """Return how far something stands out of a map of what is rare, in [0, 1]."""
    return 1.0 if salient is None else _ramp(float(standing_out(salient)), *PEAK)


def _is_dense(word: str) -> bool:
    return word in DENSE or akin(word, MATHS)


def dense_things(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words for things of DENSE, such as "formula", in a question that names nothing else.

    `words`: those that carry meaning, in order. What is done with the thing may stand before it, what it is
    turned into after it: "solve the equation", "explain the formula in words"; "invoice code" is a name.
    """
    things = tuple(word for word in words if _is_dense(word))
    if len(things) == len(words):
        return things
    worked = tuple(word for word in words if akin(word, WORKING_OUT))
    things = tuple(word for word in things if word not in MERE_PRINT) or worked
    if not things:
        return ()
    first = words.index(things[0])
    named = set(words) - {*things} - MANNER - TRANSCRIPTION_VERBS - MERE_PRINT
    before = {word for word in words[:first] if akin(word, DOING) and not word.endswith("ed")}
    after = {word for word in words[first:] if word in AFTERWARDS or akin(word, WORKING_OUT)}
    return () if named - before - after else things


def _unprinted(coupling: Coupling, trusted: float) -> float:
    """Return the probability that no `dense_things` of a question is printed as asked for; 0 without any.

    A printed word counts only as far as the guide, `trusted` in [0, 1], finds there what is asked for:
    "Number" may stand beside a code, and on a page of code beside none.
    """
    things = dense_things(coupling.words)
    # That a merely related word is printed, as "theorem" for "formula", doesn't count.
    printed = [match.likeness for match in coupling.matches if match.strength == 1 and match.word in things]
    return 1 - max(printed) * trusted if printed else 0.0


@lru_cache(maxsize=64)  # asked twice of each question of a call, and again for each page of a folder
def is_general(guide: Guide, question: str) -> bool:
    """Return whether a question is about all of a picture or what stands out in it, not about a place.

    The guide decides these even if there is a trained allocator, whose training shows it places alone.
    """
    overview, unusual = scope(guide, question)
    return max(_ramp(overview, *SCOPE), _ramp(unusual, *SCOPE)) > 0.5


@lru_cache(maxsize=64)
def is_transcription(guide: Guide, question: str) -> bool:
    """Return whether a question asks for all that is printed ("Read the page aloud.")."""
    words = terms(question).words
    is_told = is_reading(words) or not TRANSCRIPTION_VERBS.isdisjoint(words)
    return is_told and is_general(guide, question)


def doubt(coupling: Coupling) -> float:
    """Return how far a source doubts that a picture holds what is asked for, in [0, 1]: from SURE on 0."""
    return 1 - _ramp(coupling.confidence, 0.0, SURE)


def verdict(
    confidence: float,
    overview: float,
    unusual: float,
    words: Sequence[str],
    recognised: bool,
    likely: Collection[str] = (),
) -> str:
    """Return in one word what came of a question on a picture: a key of SENTENCES, such as "unread".

    The arguments are fields of a `Coupling`. `recognised`: whether a word of the question was found on the
    picture, or another source found what it needs; `likely`: such words.
    """
    middle = sum(SCOPE) / 2
    if overview > middle:
        return "overview"
    if unusual > middle:
        return "unusual"
    if words and all(map(in_other_script, words)):
        return "unread"
    things = dense_things(words)
    if things and (bool(likely) or not recognised) and not set(things).intersection(likely):
        return "dense"
    if confidence >= SURE:
        return "sure"
    return "unsure" if recognised else "nothing"


def verdict_of(coupling: Coupling) -> str:
    """Return the verdict on a `Coupling`: a key of SENTENCES, such as "sure"."""
    c = coupling
    likely = {match.word for match in c.matches if match.likeness >= LIKELY}
    return verdict(c.confidence, c.overview, c.unusual, c.words, c.recognised, likely)


def sentence(kind: str, confidence: float, words: Sequence[str] = ()) -> str:
    """Return the sentence that users see for a verdict, a key of SENTENCES, and its confidence."""
    numbered = kind not in (*GENERAL, "unread")
    parts = [f"{confidence:.0%}: {SENTENCES[kind]}" if numbered else SENTENCES[kind]]
    return "; ".join(parts + _passed_over(kind, words))


def guide_remark(coupling: Coupling, salient: Tensor | None = None) -> str | None:
    """Return the remark that users see beside an allocation, without confidence; None if there is none.

    There is none if the guide is sure, unless it is of a photograph.

    `salient` is as in `shares`.
    """
    words = coupling.words
    kind = verdict_of(coupling)
    parts = [] if kind in ("sure", *GENERAL) else [SENTENCES[kind]]
    if kind == "unusual" and _peak(salient) < 0.5:
        parts = [BUSY]
    parts += [PHOTOGRAPH] if coupling.photograph and kind not in GENERAL else []
    parts += _passed_over(kind, words) + ([] if coupling.note is None else [coupling.note])
    return "; ".join(parts) or None


def _passed_over(kind: str, words: Sequence[str]) -> list[str]:
    return [PASSED_OVER] if kind != "unread" and any(map(in_other_script, words)) else []


def in_other_script(word: str) -> bool:
    """Return whether a word has letters and none of them is Latin."""
    letters = [letter for letter in word if letter.isalpha()]
    return bool(letters) and not any("LATIN" in unicodedata.name(letter, "") for letter in letters)


def blend(coupling: Coupling, own: Tensor) -> Tensor:
    """Mix the guide's logits [H, W] with `own`, a model's attention, by the share of `not_found`."""
    return torch.lerp(coupling.logits.to(own), own, shares(coupling).not_found)


def _ramp(value: float, low: float, high: float) -> float:
    """Return 0 up to `low`, 1 from `high` on, and a straight line between."""
    return min(1.0, max(0.0, (value - low) / (high - low)))
