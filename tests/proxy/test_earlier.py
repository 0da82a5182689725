"""Whether a question is about an earlier picture, and what of it was sent before."""

from __future__ import annotations

import torch
from PIL import Image, ImageDraw

from arr_coc.files.drawing import load_font
from arr_coc.guide.coupling import Coupling, Match
from arr_coc.guide.question import terms
from arr_coc.pixels.page import find_page
from arr_coc.proxy.earlier import CERTAIN, belief, is_shown, named_things
from each import each

TALKING = (
    "Thanks!", "Thank you, that helps a lot.", "Great, what else?", "Can you explain that in more detail?",
    "Make it shorter.", "Continue.", "Translate your answer into German.", "Sounds good.", "Yes, please.",
    "What did I ask you first?", "Can you repeat the first answer?", "What does that mean?", "Are you sure?",
    "And now?", "No, that's wrong.", "Could you rewrite your last answer as a table?", "Why?", "",
)  # fmt: skip


def coupling(question: str, confidence: float, *found: str, **more: float) -> Coupling:
    words = terms(question).words
    matches = tuple(Match(word, word, 0.95 if word in found else 0.3, (0.5, 0.5)) for word in words)
    return Coupling(torch.zeros(1, 1), confidence, matches=matches, **more)


@each("question", TALKING)
def test_talk_names_nothing(question: str) -> None:
    assert named_things(terms(question).words) in ((), ("?",))
    words = [word for word in terms(question).words if word != "?"]
    assert belief(coupling(question, 0.99, *words)) == 0


def test_what_a_question_names_has_to_be_there() -> None:
    question = "Who teaches Chemistry?"
    assert belief(coupling(question, 0.6, "chemistry")) == 0.6
    assert belief(coupling(question, 0.6)) == 0  # none of its words
    assert belief(coupling(question, 0.4, "chemistry", "teaches")) == 0  # the guide is not sure
    long = "How many games has Zaan Blades lost?"
    assert belief(coupling(long, 0.6, "blades")) == 0  # one word of many, by chance
    assert belief(coupling(long, CERTAIN, "blades")) == CERTAIN
    assert belief(coupling(question, 0.9, "chemistry", overview=0.9)) == 0  # of all of a picture, any


def test_a_related_word_is_not_the_word() -> None:
    near = Match("chemistry", "physics", 0.99, (0.5, 0.5), 0.7)
    assert belief(Coupling(torch.zeros(1, 1), 0.99, matches=(near,))) == 0


def test_what_was_shown_is_told_line_by_line() -> None:
    image = Image.new("RGB", (640, 320), "white")
    pen, font = ImageDraw.Draw(image), load_font("DejaVuSans.ttf", 18)
    for y in (40, 80, 240):
        pen.text((30, y), "Platform 10 with a pram", "black", font)
    page = find_page(image)
    part, other = (20.0, 30.0, 400.0, 110.0), (20.0, 230.0, 400.0, 270.0)
    assert len(page.lines) == 3
    assert is_shown(part, page, [(part, 1.0)], 6.5)
    assert not is_shown(other, page, [(part, 1.0)], 6.5)
    assert not is_shown(part, page, [(part, 0.3)], 6.5)  # too small to be read
    assert is_shown(part, page, [(part, 0.3)], 2.0)
    assert not is_shown(part, page, [], 6.5)
    # Two parts may show it together, a line in each, but no line in two halves.
    upper, lower = (20.0, 30.0, 400.0, 70.0), (20.0, 70.0, 400.0, 110.0)
    assert is_shown(part, page, [(upper, 1.0), (lower, 1.0)], 6.5)
    left, right = (20.0, 30.0, 100.0, 110.0), (100.0, 30.0, 400.0, 110.0)
    assert not is_shown(part, page, [(left, 1.0), (right, 1.0)], 6.5)
    blank = (500.0, 120.0, 600.0, 200.0)  # without print it has to be shown itself
    assert is_shown(blank, page, [((0.0, 0.0, 640.0, 320.0), 0.6)], 6.5)
    assert not is_shown(blank, page, [(part, 2.0)], 6.5)
