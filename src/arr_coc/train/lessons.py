"""Further losses for stage `partial`, by name: what kept tokens are to say, by a module of one's own.

    register_lesson("dense", lambda item, keep, tokens: ...)    a recipe with imports = ["my_lessons"] and
                                                                lessons = { dense = 0.02 } has it

The answers' cross-entropy and the whole tower's features teach without any; a lesson knows more of its pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from arr_coc.files.saved import nearest
from arr_coc.train.rows import ImageRows

Lesson = Callable[[ImageRows, Tensor, Tensor], Tensor]
"""(image with its questions, long [K] the kept cells, [K, D] their tokens, encoded alone) -> a scalar."""
LESSONS: dict[str, Lesson] = {}
"""By name."""


def register_lesson(name: str, lesson: Lesson) -> None:
    """Add a lesson; one of the same name gives way to it."""
    LESSONS[name] = lesson


def check_lessons(names: Iterable[str]) -> None:
    """Raises ValueError where a name stands for no lesson."""
    for name in names:
        if name not in LESSONS:
            hint = nearest(name, LESSONS)
            raise ValueError(f"lessons has {name!r}, which is unknown: name its module in imports{hint}")
