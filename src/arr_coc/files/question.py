"""Check questions, and the turns before one; and say which question of a conversation a picture belongs to.

    standing_questions(["What?", "", "Who?"])    "What?", "What?", "Who?": what pictures in each are about
    questions_after(["What?", "", "Who?"], 0)    (2, "Who?"): what the user says later
    last_question(["What?", "Who?", ""])         "Who?"

Turns are what the user says in each, as a text or as the places of its tokens: empty where that is nothing,
or where the turn is that of an assistant, a system or a tool.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

Words = TypeVar("Words")


def check_question(question: object) -> str:
    """Return a question unchanged if it is a text that isn't blank.

    Raises:
        ValueError: not a text, blank, or with a lone surrogate.
    """
    if not isinstance(question, str):
        raise ValueError(f"the question is {kind_of(question)}: give a text, such as 'What is it?'")
    if not question.strip():
        raise ValueError(f"the question is empty ({question[:20]!r}); ask something about the image")
    _check_characters("question", question)
    return question


def check_questions(questions: object, answers: object = None) -> list[str]:
    """Return several questions unchanged, checked together with their answers if there are any.

    Raises:
        ValueError: a single text, no questions, an invalid one, or answers that aren't as many texts.
    """
    texts = _listed(questions)
    if not texts:
        raise ValueError(f"the questions are {questions!r:.40}: give a list of texts, one at least")
    if answers is not None:
        replies = _listed(answers)
        if len(replies) != len(texts) or not all(isinstance(reply, str) for reply in replies):
            raise ValueError(
                f"the answers are {answers!r:.40}: give a list of texts, one for each of the {len(texts)} "
                "questions"
            )
    return [check_question(text) for text in texts]


def check_history(history: object) -> list[str]:
    """Return all texts of earlier turns, pairs (question, answer), in order; answers may be empty.

    Raises:
        ValueError: not a sequence of such pairs, or an invalid text.
    """
    texts: list[str] = []
    if isinstance(history, str) or not isinstance(history, Sequence):
        raise ValueError(f"the history is {kind_of(history)}: give a list of pairs (question, answer)")
    for turn in history:
        if isinstance(turn, str) or not isinstance(turn, Sequence) or len(turn) != 2:
            raise ValueError(f"the history holds {turn!r:.40}: give pairs (question, answer)")
        question, answer = turn
        if not isinstance(answer, str):
            raise ValueError(f"an answer in the history is {kind_of(answer)}: give a text")
        _check_characters("history", answer)
        texts += [check_question(question), answer]
    return texts


def check_turns(question: object, history: object) -> list[str]:
    """Return all texts of the turns before a question, after checking it and them."""
    check_question(question)
    return check_history(history)


def standing_questions(turns: Iterable[Words]) -> Iterator[Words | None]:
    """Yield, for each turn, what its pictures are about: its own words, else the last before it, else None.

    What is said later is no part of it: a turn is read alike however long the conversation becomes.
    """
    latest: Words | None = None
    for words in turns:
        latest = words or latest
        yield latest or None


def questions_after(turns: Iterable[Words], turn: int) -> Iterator[tuple[int, Words]]:
    """Yield the numbers and words of the turns behind one, those that have words."""
    return ((number, words) for number, words in enumerate(turns) if number > turn and words)


def last_question(turns: Sequence[Words]) -> Words | None:
    """Return the words of the last turn that has any; None without any."""
    return next((words for words in reversed(turns) if words), None)


def _listed(texts: object) -> list[object]:
    """Return a collection as a list; an empty one for a single text or anything else."""
    return [] if isinstance(texts, str) or not isinstance(texts, Collection) else list(texts)


def _check_characters(what: str, text: str) -> None:
    """Raise a ValueError for a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the {what} has half of a character ({text[error.start]!r}) at place {error.start}, which "
            "can't be read: decode the text again, or leave it out"
        ) from None


def kind_of(value: object) -> str:
    """Return the name of a value's type with its article, as "an int"; "None" for None."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
