"""Training rows of drawn pages: the data of a recipe that names `world`."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from torch.utils.data import Dataset

from arr_coc.train.recipe import Recipe
from arr_coc.train.rows import ImageRows, Row
from arr_coc_lab.world import Question, draw_page
from arr_coc_lab.world.vocabulary import PARAPHRASES

FAMILIES = frozenset(PARAPHRASES)
"""The families of questions about drawn pages."""
STEP = 32
"""Sides of pages are multiples of this, in px: a cell of the bundled model, 2x2 patches of 16 px."""
FIRST_PAGE, PAGES = 90_000_000, 1_000_000_000
"""Where the seeds of drawn pages begin, and how far those of two recipe seeds are apart."""


class WorldRows(Dataset[ImageRows]):
    """Drawn pages of the training split; page i is fixed by the seed and i, and no page belongs to two seeds.

    Args:
        length: how many pages.
        sizes: typical sides in px; a page has one of them, stretched by up to a quarter in either direction.
        questions: most questions of a page, of families as even as can be.
        seed: 0 or more.
        weights: family -> weight, 1 for the others.
    """

    shuffled = False
    """The rows in order of their numbers, which are random already."""

    def __init__(
        self,
        length: int,
        sizes: Sequence[int] = (512, 768, 1024),
        questions: int = 16,
        seed: int = 0,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.length, self.images, self.sizes, self.questions = length, length, sizes, questions
        self.first, self.weights = seed * PAGES, dict(weights or {})

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> ImageRows:
        if not 0 <= index < self.length:
            raise IndexError(index)
        rng = random.Random(self.first + index)
        side, stretch = rng.choice(self.sizes) // STEP, rng.uniform(-0.25, 0.25)
        h, w = max(4, round(side * math.exp(stretch))), max(4, round(side * math.exp(-stretch)))
        seed = self.first + FIRST_PAGE + index
        page = draw_page(seed, (w * STEP, h * STEP), "train", void=False)
        where = f"world page {seed}"
        rows = tuple(
            Row(q.text, (q.answer,), q.evidence, q.family, self.weights.get(q.family, 1.0), where)
            for q in sample_questions(rng, page.questions, self.questions)
        )
        return ImageRows(page.image, rows, where)


def open_pages(recipe: Recipe, length: int) -> tuple[WorldRows, frozenset[str]]:
    """Return the drawn pages of a run, and the families of their questions."""
    return WorldRows(length, recipe.sizes, recipe.questions, recipe.seed, recipe.weights), FAMILIES


def sample_questions(
    rng: random.Random,
    questions: Sequence[Question],
    count: int,
    multiples: Mapping[str, int] | None = None,
) -> list[Question]:
    """Draw at most `count` questions of a page, their families as even as can be.

    `multiples` is how many times as often as the others a family may come.
    """
    order = sorted(questions, key=lambda q: (rng.random(), q.text))
    sample: list[Question] = []
    for limit in (1, 2, 4, 99):
        for q in order:
            most = limit * (multiples or {}).get(q.family, 1)
            if len(sample) < count and q not in sample and sum(s.family == q.family for s in sample) < most:
                sample.append(q)
    return sample
