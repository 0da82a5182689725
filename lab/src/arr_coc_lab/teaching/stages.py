"""The two stages of the guide's training, spotting and relevance: their data, learning rates and losses.

    data = Crops(open_pages(["pages"]), batch=4, size=384, seed=0, easy=2600)
    data[7]            # the batches of steps 7 * data.steps and on: [[batch], [batch], [batch]]

Decoding an image costs as much as a step, so a page is decoded once for several steps. Item i depends on
the seed and i alone: a resumed run gets the same items.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from typing import Any, Protocol

from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from arr_coc.guide.guide import Guide
from arr_coc.guide.question import normal
from arr_coc.train.processes import start_worker
from arr_coc_lab.teaching.page import Draw, easy_page, open_pages
from arr_coc_lab.teaching.recipe import GuideRecipe
from arr_coc_lab.teaching.relevance import WindowExample, make_example, relevance_loss
from arr_coc_lab.teaching.spotting import Crop, crop_page, spotting_loss
from arr_coc_lab.world.browser.vocabulary import common_words

EASY = 0.04  # share of easy pages after the first
TRIES = 200  # most pages in a row without words or questions
LANGUAGES = ("en", "de", "fr", "es")
RIVALS = 256  # words beside those of a batch that compete for its slots
SPOTS = ("eyes", "words", "sharpness", "scale", "threshold")  # parts of the guide that learn to read print
READS = (*SPOTS, "glossary")  # the same, and the vectors of the glossary's words, which depend on them
Groups = list[dict[str, Any]]


class Crops(Dataset[list[list[list[Crop]]]]):
    """Batches of crops for word spotting: an item is three steps of `batch` crops, each of another page.

    The first `easy` crops are of easy pages.
    """

    steps = 3

    def __init__(self, pages: Draw, batch: int, size: int, seed: int, easy: int) -> None:
        self.pages, self.batch, self.size, self.seed, self.easy = pages, batch, size, seed, easy
        self.words = common_words("en", "train")[:20_000]

    def __getitem__(self, index: int) -> list[list[list[Crop]]]:
        rng = random.Random(f"crops {self.seed} {index}")
        easy = index * self.steps * self.batch < self.easy
        columns = [list(islice(self._crops(rng, easy), self.steps)) for _ in range(self.batch)]
        return [[list(batch)] for batch in zip(*columns, strict=True)]

    def _crops(self, rng: random.Random, easy: bool) -> Iterator[Crop]:
        """Crops of one page, or of as many as have enough words; each easy page is cut once."""
        for _ in range(TRIES):
            plain = easy or rng.random() < EASY
            page = easy_page(rng, self.words, self.size) if plain else self.pages(rng)
            for _ in range(1 if plain else self.steps):
                crop = crop_page(page, self.size, rng)
                if crop is not None:
                    yield crop
        raise ValueError(f"of {TRIES} pages hardly one has words to spot: give pages of `arr-coc world`")


class Examples(Dataset[list[list[WindowExample]]]):
    """Windows with questions for relevance: an item is those of two steps, of `batch` windows each."""

    steps = 2

    def __init__(self, pages: Draw, batch: int, seed: int) -> None:
        self.pages, self.batch, self.seed = pages, batch, seed

    def __getitem__(self, index: int) -> list[list[WindowExample]]:
        rng = random.Random(f"examples {self.seed} {index}")
        examples: list[WindowExample] = []
        before = self.pages(rng)
        for _ in range(TRIES):
            page = self.pages(rng)
            # Whether a page answers another's question is told by its words.
            example = make_example(page, before.questions if page.words else (), rng)
            before = page
            examples += [] if example is None else [example]
            if len(examples) == self.batch * self.steps:
                return [examples[i :: self.steps] for i in range(self.steps)]
        raise ValueError(f"of {TRIES} pages hardly one has questions: give pages of `arr-coc world`")


class GuideStage(Protocol):
    """A stage: the guide's parts that learn, warmup steps, the longest gradient, lessons of a step."""

    @property
    def parts(self) -> Sequence[str]: ...

    @property
    def warmup(self) -> int: ...

    @property
    def longest(self) -> float: ...

    @property
    def lessons(self) -> int: ...

    def groups(self, parameters: dict[str, nn.Parameter]) -> Groups:
        """Groups of parameters for AdamW."""
        ...

    def data(self) -> Crops | Examples:
        """Return the stage's training data."""
        ...

    def loss(self, guide: Guide, lesson: Any, step: int) -> tuple[Tensor, dict[str, float]]:
        """Loss and its parts of one lesson of a step."""
        ...


@dataclass(frozen=True)
class SpottingStage:
    """Trains the print and word encoders: which word is printed where."""

    recipe: GuideRecipe
    parts: Sequence[str] = SPOTS
    warmup: int = 60
    longest: float = 2.0
    lessons: int = 1

    def groups(self, parameters: dict[str, nn.Parameter]) -> Groups:
        """Three times the rate for the n-gram table: few of its rows are read in a step."""
        rate = self.recipe.spotting_lr
        table = [p for name, p in parameters.items() if "table" in name]
        rest = [p for name, p in parameters.items() if "table" not in name]
        return [
            {"params": table, "lr": 3 * rate, "weight_decay": 0.0},
            {"params": rest, "lr": rate, "weight_decay": 1e-3},
        ]

    def data(self) -> Crops:
        """Crops of pages; a guide that can read already needs no easy ones."""
        recipe = self.recipe
        easy = recipe.easy if recipe.init is None else 0
        return Crops(open_pages(recipe.pages), recipe.batch, recipe.size, recipe.seed, easy)

    def loss(self, guide: Guide, lesson: list[Crop], step: int) -> tuple[Tensor, dict[str, float]]:
        rng = random.Random(f"spotting {self.recipe.seed} {step}")
        return spotting_loss(guide, lesson, rng.sample(_rivals(), RIVALS), rng)


@dataclass(frozen=True)
class RelevanceStage:
    """Trains the head: where the answer is; the print and word encoders are frozen."""

    recipe: GuideRecipe
    parts: Sequence[str] = ("reader", "pages", "head")
    warmup: int = 100
    longest: float = 1.0

    @property
    def lessons(self) -> int:
        return self.recipe.windows

    def groups(self, parameters: dict[str, nn.Parameter]) -> Groups:
        rate = self.recipe.relevance_lr
        return [{"params": [*parameters.values()], "lr": rate, "weight_decay": 1e-2, "betas": (0.9, 0.98)}]

    def data(self) -> Examples:
        recipe = self.recipe
        return Examples(open_pages(recipe.pages, recipe.drawn), recipe.windows, recipe.seed)

    def loss(self, guide: Guide, lesson: WindowExample, step: int) -> tuple[Tensor, dict[str, float]]:
        return relevance_loss(guide, lesson)


STAGES: dict[str, type[SpottingStage] | type[RelevanceStage]] = {
    "spotting": SpottingStage,
    "relevance": RelevanceStage,
}


@lru_cache(maxsize=1)
def _rivals() -> list[str]:
    """Common words of several languages."""
    words = (normal(word) for language in LANGUAGES for word in common_words(language, "train")[:20_000])
    return list(dict.fromkeys(words))


@dataclass(frozen=True)
class StepLesson:
    """A lesson and the number of its step, which seeds its random draws."""

    step: int
    lesson: Any


class Numbers(Sampler[int]):
    """All whole numbers from `first` on."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __iter__(self) -> Iterator[int]:
        return count(self.first)


def stream(data: Crops | Examples, step: int, workers: int) -> Iterator[StepLesson]:
    """Return the lessons of the steps from `step` on; worker processes end with this one.

    Raises:
        ValueError: pages can't be read, or have no words or questions.
    """
    loader = DataLoader(
        data,
        batch_size=None,
        sampler=Numbers(step // data.steps),
        num_workers=workers,
        prefetch_factor=6 if workers else None,
        worker_init_fn=start_worker,
    )
    # an item holds several steps: a run that resumes inside of one skips those already done
    steps = islice((lessons for item in loader for lessons in item), step % data.steps, None)
    return (StepLesson(number, lesson) for number, lessons in enumerate(steps, step) for lesson in lessons)
