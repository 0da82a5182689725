"""The worst cases of a result file: the questions that lost most against all tokens, with their images."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from PIL import Image

from arr_coc.core.paths import input_file
from arr_coc.evaluate.worst import Case, case_images, worst_cases

WORST = 12


class WorstCases:
    """The worst cases of a result file of `arr-coc eval`; their images are drawn at first use.

    Args:
        path: of the file.

    Raises:
        ValueError: it is no result file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = input_file(path)
        self.cases: list[Case] = worst_cases(self.path, count=WORST)

    @property
    def title(self) -> str:
        """What the cases are, in a sentence."""
        if not self.cases:
            return f"No answer of {self.path.name} is wrong."
        which = "The answer" if len(self.cases) == 1 else f"The {len(self.cases)} answers"
        it = "it" if len(self.cases) == 1 else "one"
        return (
            f"{which} of {self.path.name} where most was lost against all tokens: choose {it} to ask again."
        )

    @cached_property
    def images(self) -> list[Image.Image]:
        """The image of each case.

        Raises:
            ValueError: they can't be drawn or opened here.
        """
        return case_images(self.path, self.cases)


def caption(case: Case) -> str:
    """A case in a line: the question, the answer, the right answer."""
    return f"{case['question']} {case['answer'] or 'Nothing'}, not {case['right']}"
