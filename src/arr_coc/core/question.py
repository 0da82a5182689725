"""The one check of a question, before it is tokenized."""

from __future__ import annotations


def check_question(question: object) -> str:
    """A question as it is, where it is one.

    Any text with a word in it is: control characters and NUL are characters to a tokenizer as others are.

    Raises:
        ValueError: not a text, empty or blank, or with half of a character (a lone surrogate), which no
            tokenizer takes.
    """
    if not isinstance(question, str):
        raise ValueError(f"the question is {_kind(question)}: give a text, such as 'What is it?'")
    if not question.strip():
        raise ValueError(f"the question is empty ({question[:20]!r}); ask something about the image")
    try:
        question.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the question has half of a character ({question[error.start]!r}) at place {error.start}, which "
            "can't be read: decode the text again, or leave it out"
        ) from None
    return question


def _kind(value: object) -> str:
    """The type of a value, with its article; None by its name."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
