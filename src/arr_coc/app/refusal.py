"""What is refused, with the field of the form that it is about, so that the page can say it there."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

FIELDS = ("image", "clip", "question", "budget", "form")
"""The fields; what is about none of them is about the form as a whole."""


class Refused(ValueError):
    """A request that can't be answered.

    Args:
        field: one of `FIELDS`.
        reason: one line.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


@contextmanager
def about(field: str) -> Generator[None]:
    """What is refused within is about a field of the form.

    Raises:
        Refused: for any ValueError raised within; one that names its field already comes through.
    """
    try:
        yield
    except Refused:
        raise
    except ValueError as error:
        raise Refused(field, str(error)) from error
