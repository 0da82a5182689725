"""The check of a question, and which one a picture belongs to, as chats, prompts and tokens read it."""

from __future__ import annotations

from itertools import islice

import pytest

from arr_coc.files.question import (
    check_question,
    check_questions,
    leans,
    questions_after,
    standing_questions,
    standing_turns,
)
from each import each

TEXTS = ["What?", "Where?"]


@each("question", [" a ", "好", "🙂", "\0", "\x1b[31mred", "e\u0301", "a" * 9999])
def test_any_text_is_one(question: str) -> None:
    assert check_question(question) is question


@each(
    ("question", "words"),
    [
        (None, "is None: give a text"),
        (b"What?", "is a bytes: give a text"),
        (7, "is an int: give a text"),
        (["What?"], "is a list: give a text"),
        ("", "is empty ('')"),
        ("\n\t" * 4000, "is empty"),
        ("What \ud83d is it?", r"half of a character ('\ud83d') at place 5"),
    ],
)
def test_what_is_none_is_refused_on_one_short_line(question: object, words: str) -> None:
    with pytest.raises(ValueError, match="the question") as caught:
        check_question(question)
    message = str(caught.value)
    assert words in message
    assert message.isprintable()
    assert len(message) < 200


def test_several_are_each_one() -> None:
    assert check_questions(tuple(TEXTS)) == TEXTS
    assert check_questions(TEXTS, ["a door", ""]) == TEXTS


@each(
    ("questions", "answers", "words"),
    [
        ([], None, "the questions are []: give a list of texts"),
        ("abc", None, "the questions are 'abc': give a list of texts"),
        (None, None, "the questions are None: give a list of texts"),
        (7, None, "the questions are 7: give a list of texts"),
        (["What?", ""], None, "the question is empty ('')"),
        (["What?", 7], None, "the question is an int: give a text"),
        (TEXTS, ["a door"], "['a door']: give a list of texts, one for each of the 2 questions"),
        (TEXTS, "no", "the answers are 'no': give a list of texts"),
        (TEXTS, ["a door", 7], "the answers are ['a door', 7]: give a list of texts"),
    ],
)
def test_what_are_no_several_is_refused_on_one_short_line(
    questions: object, answers: object, words: str
) -> None:
    with pytest.raises(ValueError, match=r"the (question|answer)") as caught:
        check_questions(questions, answers)
    message = str(caught.value)
    assert words in message
    assert len(message) < 200


@pytest.mark.parametrize(
    "words",
    [
        "And its price?", "and the kettle", "What about the next row?", "How about 2023?", "Or tea?", "Why?",
        "Are you sure?", "Please check that again.", "And what about tea?", "And how much?",
        "How much is it?", "What is its total?", " But who?",
        "The next one?", "the left one", "Where is it?", "Is that correct?", "What else?", "Any others?",
    ],
)  # fmt: skip
def test_what_leans_on_an_earlier_question(words: str) -> None:
    assert leans(words)


@pytest.mark.parametrize(
    "words",
    [
        "", "?!", "What is the total?", "Android version?", "How many dogs are there?", "Thanks!",
        "What is this?", "And what is the total?", "But is it paid?", "Which server has its popup open?",
        "What does the dog in the garden hold in its mouth?", "Orders of May?",
        "When is it due?", "What time is it in Jakarta?", "When do they open?", "What is it?", "Who is she?",
        "What is the mean?", "What is on the left?", "Where is the lamp?",
    ],
)  # fmt: skip
def test_what_stands_alone(words: str) -> None:
    assert not leans(words)


def test_pictures_are_about_the_words_of_their_turn_or_the_last_before() -> None:
    assert list(standing_questions(["", "What?", "", "Who?", ""])) == [None, "What?", "What?", "Who?", "Who?"]
    assert list(standing_questions([])) == []


def test_a_question_that_leans_on_others_has_their_words_before_its_own() -> None:
    turns = ["", "And x?", "And y?", "", "Its z?", "And w?", "Who pays?"]
    assert list(standing_turns(turns)) == [(), (1,), (1, 2), (1, 2), (1, 2, 4), (2, 4, 5), (6,)]
    assert list(standing_questions(turns))[2:5] == ["And x? And y?", "And x? And y?", "And x? And y? Its z?"]
    assert dict(questions_after(turns, 2)) == {
        4: "And x? And y? Its z?",
        5: "And y? Its z? And w?",
        6: "Who pays?",
    }


def test_a_turn_is_read_alike_however_long_the_conversation_becomes() -> None:
    turns = ["", "What?", "", "And who?"]
    for length in range(len(turns)):
        every = list(standing_questions(turns))
        assert list(standing_questions(turns[:length])) == every[:length]


def test_what_the_user_says_later() -> None:
    turns = ["What?", "", "Who?", "How many?"]
    assert dict(questions_after(turns, 0)) == {2: "Who?", 3: "How many?"}
    assert dict(questions_after(turns, 3)) == {}
    read: list[int] = []
    lazily = (read.append(number) or words for number, words in enumerate(turns))
    assert dict(islice(questions_after(lazily, 0), 1)) == {2: "Who?"}
    assert read == [0, 1, 2]  # and no further than it has to
