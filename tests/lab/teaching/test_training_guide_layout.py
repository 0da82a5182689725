"""Questions about where print stands name what they mean, and their boxes are its own."""

import random

import pytest

from arr_coc_lab.teaching.wording import EDGES, layout_questions, runs_of
from arr_coc_lab.world.browser.chromium import Word

SIZE = (600, 400)
LINES = {
    20: (("Monthly", 30), ("report", 102), ("Page", 500), ("7", 545)),
    120: (("Rent", 30), ("open", 300)),
    160: (("Power", 30), ("open", 300)),
    200: (("Phone", 30), ("paid", 300)),
    360: (("Printed", 30), ("on", 100), ("12:45", 500)),
}
"""Words by the top of their line and their left edge, print of 16 px."""
WORDS = [
    Word(text, (x, y, x + 9.0 * len(text), y + 18.0), 16.0) for y, line in LINES.items() for text, x in line
]


def every_question(words=WORDS, tries=300):
    for seed in range(tries):
        yield from layout_questions(words, SIZE, random.Random(seed), most=5)


def texts(question, words=WORDS):
    by_box = {word.box: word.text for word in words}
    return [by_box[box] for box in question.evidence]


def test_words_of_one_line_that_stand_together_are_a_run():
    runs = [run.text for run in runs_of(WORDS)]
    assert runs == [
        "Monthly report", "Page 7", "Rent", "open", "Power", "open", "Phone", "paid", "Printed on", "12:45",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_last_line_and_the_first_are_whole():
    by_side = {side: set() for side in EDGES}
    for question in every_question():
        for side, wordings in EDGES.items():
            if question.text in wordings:
                by_side[side].add(tuple(texts(question)))
    assert by_side == {
        "top": {("Monthly", "report", "Page", "7")},
        "bottom": {("Printed", "on", "12:45")},
    }


@pytest.mark.slow
def test_nothing_is_last_where_print_is_cut_off():
    cut = [*WORDS, Word("Half", (30.0, 392.0, 70.0, 410.0), 16.0)]
    asked = {question.text for question in every_question(cut)}
    assert not asked.intersection(EDGES["bottom"])
    assert asked.intersection(EDGES["top"])


@pytest.mark.slow
def test_corners_hold_what_is_nearest():
    corners = {
        ("upper", "left"): "Monthly report",
        ("upper", "right"): "Page 7",
        ("lower", "left"): "Printed on",
        ("lower", "right"): "12:45",
    }
    met = set()
    for question in every_question():
        for (down, across), text in corners.items():
            if f"{down} {across}" in question.text:
                assert question.answer == text
                met.add((down, across))
    assert met == set(corners)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "answer"),
    [(("below", "Rent"), "Power"), (("above", "Phone"), "Power"), (("right of", "Phone"), "paid")],
)
def test_neighbours_face_each_other(words, answer):
    answers = {
        question.answer
        for question in every_question()
        if question.kind == "position" and all(word.lower() in question.text.lower() for word in words)
    }
    assert answers == {answer}


@pytest.mark.slow
def test_what_is_written_twice_is_counted_at_both_places():
    counts = [question for question in every_question() if question.kind == "count"]
    assert counts
    for question in counts:
        assert question.answer == "2"
        assert texts(question) == ["open", "open"]


@pytest.mark.slow
def test_numbers_are_looked_for():
    numbers = {question.answer for question in every_question() if question.kind == "word"}
    assert numbers == {"12:45"}
