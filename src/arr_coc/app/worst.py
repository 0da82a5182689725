"""The worst cases of a result file: the questions that lost most against all tokens, with their images."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from PIL import Image

from arr_coc.evaluate.worst import Case, case_image, worst_cases

WORST = 12


class WorstCases:
    """The worst cases of a result file of `arr-coc eval`; their images are drawn at first use.

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
        """The image of each case.

        Raises:
            ValueError: they can't be drawn or opened here.
        """
        return [case_image(self.path, case) for case in self.cases]


def caption(case: Case) -> str:
    """A case in a line: the question, the answer, the right answer."""
    return f"{case['question']} {case['answer'] or 'Nothing'}, not {case['right']}"
