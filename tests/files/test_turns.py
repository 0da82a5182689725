"""Which question a picture belongs to, as chats, prompts and tokens read it."""

from __future__ import annotations

from itertools import islice

from arr_coc.files.turns import last_question, questions_after, standing_questions


def test_pictures_are_about_the_words_of_their_turn_or_the_last_before() -> None:
    assert list(standing_questions(["", "What?", "", "Who?", ""])) == [None, "What?", "What?", "Who?", "Who?"]
    assert list(standing_questions([[], [3, 4], []])) == [None, [3, 4], [3, 4]]
    assert list(standing_questions([])) == []


def test_a_turn_is_read_alike_however_long_the_conversation_becomes() -> None:
    turns = ["", "What?", "", "Who?"]
    for length in range(len(turns)):
        every = list(standing_questions(turns))
        assert list(standing_questions(turns[:length])) == every[:length]


def test_what_the_user_says_later_and_last() -> None:
    turns = ["What?", "", "Who?", "When?"]
    assert dict(questions_after(turns, 0)) == {2: "Who?", 3: "When?"}
    assert dict(questions_after(turns, 3)) == {}
    read: list[int] = []
    lazily = (read.append(number) or words for number, words in enumerate(turns))
    assert dict(islice(questions_after(lazily, 0), 1)) == {2: "Who?"}
    assert read == [0, 1, 2]  # and no further than it has to
    assert last_question(reversed(["What?", "Who?", ""])) == "Who?"
    assert last_question([[], []]) is None
