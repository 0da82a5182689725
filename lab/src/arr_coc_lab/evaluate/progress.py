"""A progress bar of a run on stderr, with one line that estimates how long the rest takes.

with Progress(2000, done=0, entries=6, hidden=False) as progress:
    progress.advance(5, seconds=9.1)      of each image; "about 59 min for 1,980 questions x 6 ..."
"""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from typing import Self

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from arr_coc.train.callbacks import rounded_up

MEASURED = 3
"""Images measured before the estimate, after a first one that warms up the machine."""


class Progress:
    """A context with a bar for `total` questions, `done` of them before; the library's log is written above
    it.

    For the estimate: `entries` methods with budgets, `timed` questions that are also run alone, and `parts`
    processes that share the work.
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
        self._images = -1  # the first image, which warms up the machine, does not count
        self._questions, self._seconds = 0, 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if not self.hidden:
            self._stack.enter_context(logging_redirect_tqdm([logging.getLogger("arr_coc")]))
        self._stack.enter_context(self.bar)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def advance(self, count: int, seconds: float | None = None) -> None:
        """Advance by `count` questions (below 0: to be asked again); without `seconds` it is not measured."""
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
        """Return how long the rest takes, in words."""
        left = max(1, round(self.left / self.parts))
        rest = left * self._seconds / self._questions
        alone = f", and what {self.timed:,} of them take to be timed alone" if self.timed else ""
        work = f"{left:,} questions x {self.entries} methods and budgets"
        return f"about {duration(rounded_up(rest))} for {work}{alone}"


def duration(seconds: float) -> str:
    """Return a time in words: "40 s", "14 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60:,} h {minutes % 60} min"
