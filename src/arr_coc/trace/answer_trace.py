"""What every trace holds of an answer, be it about an image, a clip or several of either."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    """An answer from all tokens.

    Attributes:
        text: the answer.
        ms: milliseconds per stage, as in `Answer.ms`, from scratch.
        again: as of `AnswerTrace.again`: without the encoding, which the stock model could keep.
    """

    text: str
    ms: dict[str, float]
    again: dict[str, float] | None = None


def check_plain(plain: dict[str, Any]) -> None:
    """Raise a ValueError unless JSON holds the fields of a trace unchanged."""
    try:
        unchanged = json.loads(json.dumps(plain, allow_nan=False)) == plain
    except (TypeError, RecursionError) as error:
        raise ValueError(f"JSON can't hold this trace: {error}") from error
    if not unchanged:
        raise ValueError("JSON would change this trace: use lists, not tuples, and text for keys")


def is_among(answer: str, truths: Sequence[str]) -> bool | None:
    """Whether an answer is one of some, but for case and spaces; None where there are none."""
    every = [" ".join(truth.split()).casefold() for truth in truths]
    return " ".join(answer.split()).casefold() in every if every else None


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerTrace:
    """A record of one answer, whatever it is about.

    Attributes:
        question: the question, unchanged.
        answer: from the kept tokens.
        mode: the mode that ran.
        budget: the budget of the call, for each image and clip.
        kept: number of kept cells of all of them.
        total: number of their cells.
        read: number of visual tokens that the language model read. In mode "saccade" `read - kept` of them
            are the coarse view.
        fallback: whether the allocation failed and all tokens were used.
        note: why another mode ran than the one of the call; None: it did not.
        ms: milliseconds per stage, as in `Answer.ms`, from scratch: nothing of the image was computed before.
        model: name of the base model.
        full: the answer from all tokens, if it was made.
        machine: what the times were taken on, in words; "": not known.
        again: milliseconds per stage of the question asked once more, in a session that has kept what it
            computed of the image; None: not measured.
        true_answers: answers that are known to be true; none: not known.
    """

    question: str
    answer: str
    mode: str
    budget: int | float | str
    kept: int
    total: int
    read: int
    fallback: bool
    note: str | None
    ms: dict[str, float]
    model: str
    full: Reply | None = None
    machine: str = ""
    again: dict[str, float] | None = None
    true_answers: tuple[str, ...] = ()

    def check_times(self) -> None:
        """Raise a ValueError where a stage of an answer took less than no time."""
        full = self.full
        stages = [self.ms, self.again, *((full.ms, full.again) if full else ())]
        times = [time for one in stages if one is not None for time in one.values()]
        if not all(0 <= time for time in times):
            raise ValueError(f"milliseconds {times} must not be below 0")

    @property
    def agree(self) -> bool | None:
        """Whether both answers are the same text; None without an answer from all tokens."""
        return None if self.full is None else self.full.text.strip() == self.answer.strip()

    @property
    def is_true(self) -> bool | None:
        """Whether the answer is one of `true_answers`, but for case and spaces; None where none is known."""
        return is_among(self.answer, self.true_answers)

    def verdicts(self) -> dict[str, bool | None]:
        """What a viewer draws of whether the answers agree and are true."""
        full = None if self.full is None else is_among(self.full.text, self.true_answers)
        return {"agree": self.agree, "is_true": self.is_true, "full_is_true": full}
