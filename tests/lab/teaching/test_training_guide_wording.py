"""Wordings: what is asked for stays, whatever is said around it."""

import random

import pytest

from arr_coc.guide.question import split_words
from arr_coc_lab.teaching.wording import AFTER, BEFORE, ORDERS, as_typed, misspelt, reworded

QUESTION = "What is the invoice number?"


def typed(text, count=600):
    return [as_typed(text, random.Random(seed)) for seed in range(count)]


def test_a_seed_is_a_wording_and_most_are_another():
    assert typed(QUESTION) == typed(QUESTION)
    assert len(set(typed(QUESTION))) > 150
    assert 0.2 < typed(QUESTION).count(QUESTION) / 600 < 0.5


def test_what_is_asked_for_stays():
    kept = [{"invoice", "number"} <= set(split_words(text)) for text in typed(QUESTION)]
    assert sum(kept) > 0.88 * len(kept), "all but those with a slip"


def test_questions_of_another_form_are_not_put_in_other_words():
    for text in ("Who is the seller?", "What is written under the notes?", "How much is it?"):
        assert {reworded(text, random.Random(seed)) for seed in range(30)} == {text}
    orders = {reworded("what's the total", random.Random(seed)) for seed in range(300)}
    assert orders == {text[:1].upper() + text[1:] for text in (o.format("the total") for o in ORDERS)}


@pytest.mark.parametrize("wordings", [BEFORE, AFTER])
def test_what_is_put_around_is_set_off_by_a_space(wordings):
    assert all(text.strip() and text != text.strip() for text in wordings)
    assert len(set(wordings)) == len(wordings)


def test_a_slip_changes_long_words_alone():
    for seed in range(50):
        text = misspelt("What is the invoice number?", random.Random(seed))
        assert text.split()[:3] == ["What", "is", "the"]
        assert all(abs(len(a) - len(b)) <= 1 for a, b in zip(text.split(), QUESTION.split(), strict=True))


def test_nothing_empty_comes_out():
    for text in ("x", "What is the ?", "?", "What's the weather like"):
        assert all(other.strip() for other in typed(text, 100))
