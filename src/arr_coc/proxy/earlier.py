"""A later question about an earlier picture: whether it is about that, and what of it was sent before.

belief(coupling)                              in [0, 1], that a question is about a picture
is_shown(part, page, places, readable=6.5)    whether what is printed there was sent already
"""

from __future__ import annotations

from collections.abc import Sequence

from arr_coc.choose.boxes import Box
from arr_coc.guide.coupling import LIKELY, Coupling
from arr_coc.guide.lexicon import STOP_WORDS
from arr_coc.guide.trust import SURE
from arr_coc.pixels.lines import print_height
from arr_coc.pixels.packing import SHARPNESS, USUAL_PRINT
from arr_coc.pixels.page import PrintedPage

# Of 132 questions about one of ten pages (runs/strangers) these two find the page for 64, a wrong one for 8.
NAMED = 0.5  # share of a question's words that have to stand on such a picture
CERTAIN = 0.8  # the confidence from which one of them is enough
TALK = frozenset(
    """
    actually add again already also alright alternative alternatives answer answered answers anyway ask asked
    asking basically best better bit briefly bullet bullets bye check clarify clear
    compare concise continue convert conversation correct detail detailed details difference different
    discussed double-check elaborate else enough everything exactly example examples expand explain
    explanation fine first five follow following function further go going good got great guess happy hello
    help helped helpful helps hey hi idea instead interesting joke keep kidding know last later list little
    long longer lot made make makes mean means meant message more move never next nice now ok okay once
    option options otherwise perfect point points poem possible previous problem question questions quick
    reason recommend redo repeat rephrase reply response rest rewrite right said same second sense sentence
    sentences short shorten shorter simple simpler simply something sorry sound sounds step stop story
    stuff suggest suggestion summarise summarize summary sure table talk thank thanks that's thing things
    think thought three translate translated translation true try two understand understood use useful
    version very wait want well word words wow write written wrong yeah yep
    english french german italian portuguese spanish
    """.split()
)
"""Words of turns about the talk itself ("Can you explain that in more detail?"), which name nothing."""

Shown = tuple[Box, float]  # a box that was sent, in px of its picture, and its magnification


def named_things(words: Sequence[str]) -> tuple[str, ...]:
    """Return those of a question's words that name something which a picture may show."""
    return tuple(word for word in words if word not in STOP_WORDS and word not in TALK)


def belief(coupling: Coupling) -> float:
    """Return how sure it is that a question is about a picture, in [0, 1]; 0: too little says so.

    The guide's confidence alone is high for many a "Great, what else?". So half of what the question names
    has to be printed there, or some of it and the guide be CERTAIN.
    """
    named = named_things(coupling.words)
    likely = {one.word for one in coupling.matches if one.likeness >= LIKELY and one.strength == 1}
    hits = sum(word in likely for word in named)
    if coupling.general or not hits or coupling.confidence < SURE:
        return 0.0
    return coupling.confidence if hits >= NAMED * len(named) or coupling.confidence >= CERTAIN else 0.0


def is_shown(part: Box, page: PrintedPage, places: Sequence[Shown], readable: float) -> bool:
    """Return whether all print in a part of a picture was sent before, so high that most of it is read.

    `readable` is the height in px of print of which half is.
    """
    x, y = (page.boxes[:, 0] + page.boxes[:, 2]) / 2, (page.boxes[:, 1] + page.boxes[:, 3]) / 2
    inside = (x >= part[0]) & (x <= part[2]) & (y >= part[1]) & (y <= part[3])
    lines = [line for line, one in zip(page.lines, inside, strict=True) if one] or [part]
    height = print_height(lines) if inside.any() else USUAL_PRINT
    least = (1 + SHARPNESS) * readable / (height or USUAL_PRINT)
    clear = [box for box, magnification in places if magnification >= least]
    return all(any(_holds(box, line) for box in clear) for line in lines)


def _holds(box: Box, line: Box) -> bool:
    """Return whether a box holds a line, but for two px."""
    return box[0] <= line[0] + 2 and box[1] <= line[1] + 2 and box[2] >= line[2] - 2 and box[3] >= line[3] - 2
