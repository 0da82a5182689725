"""Which question of a conversation a picture belongs to: one rule for chats, prompts and tokens.

    standing_questions(["What?", "", "Who?"])    "What?", "What?", "Who?": what pictures in each are about
    questions_after(["What?", "", "Who?"], 0)    (2, "Who?"): what the user says later
    last_question(["", "Who?", "What?"])         "Who?": of turns from the last to the first

A turn is what the user says in it, as a text or as the places of its tokens. It is empty where the user says
nothing, and where the turn is that of an assistant, a system or a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Words = TypeVar("Words")


def standing_questions(turns: Iterable[Words]) -> Iterator[Words | None]:
    """Yield, for each turn, what its pictures are about: its own words, else the last words before it.

    Without any it is None. What is said later is no part of it, so that a turn is read alike however long the
    conversation becomes.
    """
    latest: Words | None = None
    for words in turns:
        latest = words or latest
        yield latest or None


def questions_after(turns: Iterable[Words], turn: int) -> Iterator[tuple[int, Words]]:
    """Yield the numbers and words of the turns behind one, those that have words."""
    return ((number, words) for number, words in enumerate(turns) if number > turn and words)


def last_question(backwards: Iterable[Words]) -> Words | None:
    """Return the words of the last turn that has any, of turns in reverse; None without any."""
    return next((words for words in backwards if words), None)
