"""Check questions, and the turns before one; and say which question of a conversation a picture belongs to.

    standing_questions(["What?", "", "Who?"])    "What?", "What?", "Who?": what pictures in each are about
    questions_after(["What?", "", "Who?"], 0)    (2, "Who?"): what the user says later
    standing_turns(["The price?", "And its weight?"])    (0,), (0, 1): a question may lean on the one before

Turns are what the user says in each: empty where that is nothing, or where the turn is that of an assistant,
a system or a tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, tee
from typing import TypeVar

T = TypeVar("T")

MAX_LEANING = 3  # turns whose words make one question: the last ones
FIRST_WORDS = 3  # of a question, where one of these stands for what an earlier one named
POSSESSIVES = frozenset("her hers his its their theirs".split())  # "it" is often the picture itself
WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)?")
# Not "And what is the total?", which is a whole question
OPENING = re.compile(
    r"(?:(?:and|but|or|then),? )?(?:(?:what|how) about|(?:what|who) else)\b|(?:and|but|or|then)\b(?!,? "
    r"(?:what|which|who|whose|when|where|how|why|is|are|was|does|do|did|can|has)\b(?:\W+\w+){2})",
    re.IGNORECASE,
)
# What consists of words such as these alone names nothing itself: "Why?", "The next one?", "Is that correct?"
REFERRING = frozenset(
    """
    about above again and another answer any anything are be below can check correct could detail
    details did do does double elaborate else exactly explain further give got had has how i in is it
    last left me more much next no not of one ones only other others please really right same say second
    so something still sure tell than that the them then there these they think third those too true was
    were when where which why would wrong you your
    """.split()
)


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


def leans(words: str) -> bool:
    """Return whether a question says only with the one before it what it is about: "And its price?"."""
    if OPENING.match(words.lstrip()):
        return True
    parts = (part[0].lower() for part in WORD.finditer(words))  # of a long text the first ones decide
    first = list(islice(parts, FIRST_WORDS))
    return bool(first) and (
        not POSSESSIVES.isdisjoint(first) or all(part in REFERRING for part in chain(first, parts))
    )


def standing_turns(turns: Iterable[str]) -> Iterator[tuple[int, ...]]:
    """Yield, for each turn, the numbers of the turns that say what its pictures are about.

    Its own; before it those that its words lean on, at most MAX_LEANING together; without words those of the
    turn before it; none where nothing was said. What is said later is no part of it: a turn is read alike
    however long the conversation becomes.
    """
    latest: tuple[int, ...] = ()
    for number, words in enumerate(turns):
        if words:
            latest = (*(latest[1 - MAX_LEANING :] if leans(words) else ()), number)
        yield latest


def last_turns(turns: Iterable[str]) -> tuple[int, ...]:
    """Return the last of `standing_turns`, of one turn or more."""
    *_, last = standing_turns(turns)
    return last


def standing_questions(turns: Iterable[str]) -> Iterator[str | None]:
    """Yield, for each turn, what its pictures are about, of `standing_turns`; None where nothing was said."""
    every: list[str] = []
    for words, numbers in _beside(turns, standing_turns):
        every.append(words)
        yield " ".join(every[number] for number in numbers) or None


def questions_after(turns: Iterable[str], turn: int) -> Iterator[tuple[int, str]]:
    """Yield the numbers and questions of the turns behind one, those that have words."""
    for number, (words, question) in enumerate(_beside(turns, standing_questions)):
        if number > turn and words and question:
            yield number, question


def _beside(turns: Iterable[str], read: Callable[[Iterable[str]], Iterator[T]]) -> Iterator[tuple[str, T]]:
    """Yield each turn with what is read of it, which goes no further than that turn."""
    own, other = tee(turns)
    return zip(own, read(other), strict=True)


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
