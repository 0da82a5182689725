"""The worst cases of a result file: the questions that lost most against all tokens, with their images."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.files.paths import input_file
from arr_coc.files.plugins import plugin

WORST = 12


class WorstCases:
    """The worst cases of a result file of `arr-coc eval`; their images are drawn at first use.

    Args:
        path: of the file.

    Raises:
        ValueError: it is no result file, or `arr-coc-lab` is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = input_file(path)
        self._lab = plugin("cases", "worst")
        self.cases: list[dict[str, Any]] = self._lab.worst_cases(self.path, count=WORST)

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
        return self._lab.case_images(self.path, self.cases)


def caption(case: Mapping[str, Any]) -> str:
    """A case in a line: the question, the answer, the right answer."""
    return f"{case['question']} {case['answer'] or 'Nothing'}, not {case['right']}"
