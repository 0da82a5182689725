"""What the stages of the guide's training are taught by, in the order of their steps.

    data = Crops(open_pages(["pages"]), batch=4, size=384, seed=0, easy=2600)
    data[7]            # the batches of steps 7 * data.steps and on: [[batch], [batch], [batch]]

Decoding a picture costs as much as a step, so a page is decoded once for several steps. Item i follows from
the seed and i: a run that goes on sees what it would have seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler

from arr_coc.train.workers import start_worker, worker_message
from arr_coc_lab.teaching.crops import Crop, crop_page
from arr_coc_lab.teaching.easy import easy_page
from arr_coc_lab.teaching.page import Draw
from arr_coc_lab.teaching.relevance import Example, make_example
from arr_coc_lab.world.browser.vocabulary import common_words

EASY = 0.04
"""Share of easy pages after the first."""
TRIES = 200
"""Pages in a row that may have nothing to teach."""


class Crops(Dataset[list[list[list[Crop]]]]):
    """Batches of crops for word spotting: an item is that of three steps, from as many pages as crops a step.

    Args:
        pages: to cut from.
        batch: crops of a step, each of another page.
        size: of a crop in px.
        seed: of every choice.
        easy: crops at the start that are of easy pages.
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


class Examples(Dataset[list[list[Example]]]):
    """Windows with questions for relevance: an item is that of two steps; pages lend each other questions.

    Args:
        pages: to learn on.
        batch: windows of a step.
        seed: of every choice.
    """

    steps = 2

    def __init__(self, pages: Draw, batch: int, seed: int) -> None:
        self.pages, self.batch, self.seed = pages, batch, seed

    def __getitem__(self, index: int) -> list[list[Example]]:
        rng = random.Random(f"examples {self.seed} {index}")
        examples: list[Example] = []
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


class From(Sampler[int]):
    """All numbers from one on."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __iter__(self) -> Iterator[int]:
        return count(self.first)


def stream(data: Crops | Examples, step: int, workers: int) -> Iterator[list[Any]]:
    """What the steps from `step` on are taught by; processes that make it end with this one.

    Raises:
        ValueError: pages can't be read or have nothing to teach; one line.
    """
    loader = DataLoader(
        data,
        batch_size=None,
        sampler=From(step // data.steps),
        num_workers=workers,
        prefetch_factor=6 if workers else None,
        worker_init_fn=start_worker,
    )
    lessons = (lesson for item in loader for lesson in item)
    try:
        yield from islice(lessons, step % data.steps, None)
    except ValueError as error:
        raise ValueError(worker_message(str(error))) from error
