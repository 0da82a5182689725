"""The bar of a run on stderr, and a line that says once how long the rest of it will take.

    with Progress(2000, done=0, entries=6, hidden=False) as progress:
        progress.advance(5, seconds=9.1)      of each image; "about 59 min for 1,980 questions x 6 ..."

Law: the first image does not count, for it also warms the machine up; nor does one that is also timed.
"""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from typing import Self

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

MEASURED = 3
"""So many images are measured before the rest is estimated."""


class Progress:
    """A context: the bar is there inside, and the library's log is written above it.

    Args:
        total: questions of the run.
        done: those that the file has already.
        entries: methods with their budgets, for the estimate.
        timed: questions that will also be run alone, which the estimate leaves out.
        parts: processes that share the questions, of which this is one.
        hidden: show nothing.
    """

    def __init__(
        self, total: int, done: int, entries: int, timed: int = 0, parts: int = 1, hidden: bool = False
    ) -> None:
        self.bar = tqdm(total=total, initial=done, unit="question", disable=hidden, dynamic_ncols=True)
        self.left, self.entries, self.timed, self.parts, self.hidden = (
            total - done,
            entries,
            timed,
            parts,
            hidden,
        )
        self._images = -1
        self._questions, self._seconds = 0, 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Begin."""
        if not self.hidden:
            self._stack.enter_context(logging_redirect_tqdm([logging.getLogger("arr_coc")]))
        self._stack.enter_context(self.bar)
        return self

    def __exit__(self, *error: object) -> None:
        """End, whatever has happened."""
        self._stack.close()

    def advance(self, count: int, seconds: float | None = None) -> None:
        """Go on by so many questions.

        Args:
            count: of one image; below 0 where they have to be asked again.
            seconds: what they took together; None: they weren't asked now, or are no measure.
        """
        self.bar.update(count)
        self.left -= count
        if seconds is None or self._images == MEASURED:
            return
        self._images += 1
        if self._images:
            self._questions += count
            self._seconds += seconds
        if self._images == MEASURED and self.left and not self.hidden:
            self.bar.write(self.estimate(), file=sys.stderr)

    def estimate(self) -> str:
        """How long the rest takes, in words."""
        left = max(1, round(self.left / self.parts))
        rest = left * self._seconds / self._questions
        alone = f", and what {self.timed:,} of them take to be timed alone" if self.timed else ""
        work = f"{left:,} questions x {self.entries} methods and budgets"
        return f"about {duration(rest)} for {work}{alone}"


def duration(seconds: float) -> str:
    """A time in words of one unit or two: "40 s", "14 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60:,} h {minutes % 60} min"
