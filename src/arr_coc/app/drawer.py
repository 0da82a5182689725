"""The drawer of worst cases: the questions of a result file that lost most against all tokens."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from PIL import Image

from arr_coc.evaluate.worst import Case, case_image, worst_cases

WORST = 12


class Drawer:
    """A result file of `arr-coc eval`, read at once; its images are drawn when they are first looked at.

    Args:
        path: of the file.

    Raises:
        ValueError: it is no result file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.cases: list[Case] = worst_cases(self.path, count=WORST)

    @cached_property
    def images(self) -> list[Image.Image]:
        """One of each case.

        Raises:
            ValueError: they can't be drawn or opened here.
        """
        return [case_image(self.path, case) for case in self.cases]


def said(case: Case) -> str:
    """A case in a line: the question, what was said, what is right."""
    return f"{case['question']} {case['answer'] or 'Nothing'}, not {case['right']}"
