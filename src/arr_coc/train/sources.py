"""The items of a training run: images with their questions, of all data sets of a recipe in turns.

    rows = open_rows(load_recipe("relevance"))    # a data set of steps x batch items
    rows[0]                                       # ImageRows(image, rows, where)

An item depends on the recipe and its number alone, so a killed run goes on with the items it would have had.
Every image of a file comes once before one comes again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from torch.utils.data import Dataset

from arr_coc.data import Example, open_data
from arr_coc.files.plugins import plugin
from arr_coc.files.saved import record_name
from arr_coc.train.fields import MARKS, PARTS
from arr_coc.train.folder import is_main_process
from arr_coc.train.recipe import Recipe
from arr_coc.train.rows import FileRows, ImageRows, family_of

logger = logging.getLogger(__name__)


class Source(Protocol):
    """A data set of images with their questions.

    Attributes:
        shuffled: each epoch has an order of its own.
        images: how many different ones there are.
    """

    shuffled: bool
    images: int

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> ImageRows: ...


class Turns(Dataset[ImageRows]):
    """Several sources as one data set of a given length: they take turns, in an order drawn for each round.

    A source that is named twice has two turns in a round.

    Args:
        sources: by name.
        turns: the names of one round.
        length: how many items.
        seed: of the orders.
    """

    def __init__(
        self, sources: Mapping[str, Source], turns: Sequence[str], length: int, seed: int = 0
    ) -> None:
        self.sources, self.turns, self.length, self.seed = dict(sources), list(turns), length, seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> ImageRows:
        if not 0 <= index < self.length:
            raise IndexError(index)
        rounds, turn = divmod(index, len(self.turns))
        order = random.Random(f"round {rounds} of {self.seed}").sample(self.turns, len(self.turns))
        name = order[turn]
        number = rounds * self.turns.count(name) + order[:turn].count(name)
        source = self.sources[name]
        if source.shuffled:
            epoch, position = divmod(number, len(source))
            number = _order(len(source), f"epoch {epoch} of {name}, {self.seed}")[position]
        return replace(source[number], number=index)

    def images(self) -> dict[str, int]:
        """At most how many different images a run reads, by kind of source ("world", "folder", ...)."""
        counts: dict[str, int] = {}
        for name, source in self.sources.items():
            items = -(-self.length * self.turns.count(name) // len(self.turns))
            kind = record_name(name.partition(":")[0])
            counts[kind] = counts.get(kind, 0) + min(items, source.images)
        return counts


@lru_cache(maxsize=16)
def _order(length: int, seed: str) -> list[int]:
    return random.Random(seed).sample(range(length), length)


def open_rows(recipe: Recipe) -> Turns:
    """The items of a run, `recipe.steps` x `recipe.batch` of them; files are read now, images when they come.

    In stage relevance with boxes or maps as target, questions without teach nothing and are left out. In
    stages answers and hard the model's own answers stand in where there are none, which a warning says.

    Raises:
        ValueError: what a reader raises; a data set without questions; boxes or maps are the target and
            there are none; no question is of a hard family.
    """
    length, soft = recipe.steps * recipe.batch, recipe.target == "maps"
    sources: dict[str, Source] = {}
    families: set[str] = set()
    boxless: list[str] = []
    for spec in dict.fromkeys(recipe.data):
        if ":" not in spec:  # rows that are made, not read
            sources[spec], made = plugin("rows", spec)(recipe, length)
            families |= made
            continue
        data, readings = open_data(spec, recipe.split, recipe.limit, clips=False)
        examples = rest_of(readings, recipe.hold_out)
        if not examples:
            raise ValueError(f"data {spec!r} has no questions: check the file, or name another split")
        _note_answers(recipe, spec, examples)
        boxed = [example for example in examples if example.map or (example.boxes and not soft)]
        if not boxed:
            boxless.append(spec)
        families |= {family_of(example) for example in examples}
        if recipe.stage == "relevance" and recipe.target in MARKS:
            examples = boxed
        sources[spec] = FileRows(examples, data.prompt, recipe.questions, recipe.weights, recipe.max_pixels)
    _check_boxes(recipe, boxless, len(sources))
    if recipe.stage == "hard" and not families & set(recipe.hard):
        present = ", ".join(sorted(families - {""})) or "unknown"
        remedy = 'write "family" into the questions, or use stage "answers"'
        raise ValueError(
            f"hard has {', '.join(recipe.hard) or 'no family'}, but the families of the data are: {present}; "
            f"{remedy}"
        )
    return Turns(sources, recipe.data, length, recipe.seed)


def rest_of(examples: Iterable[Example], every: int) -> list[Example]:
    """The questions but for those of every N-th image, which `arr-coc eval --part N/N` measures on.

    Args:
        examples: of a reader; images are counted in the order in which they first come.
        every: N; 0 leaves out none.
    """
    numbers: dict[Path, int] = {}
    pairs = [(numbers.setdefault(example.image, len(numbers)), example) for example in examples]
    return [example for number, example in pairs if not every or number % every != every - 1]


def _note_answers(recipe: Recipe, spec: str, examples: Sequence[Example]) -> None:
    """Say that a model will be taught its own answers, which is meant in no stage but relevance."""
    without = sum(not example.answers for example in examples)
    if without and recipe.stage not in ("relevance", *PARTS) and recipe.answer and is_main_process():
        logger.warning(
            "%s of %s questions of data %r have no answer: the model's own, read with all tokens, stand in; "
            "name data with answers (jsonl:DIR reads those of the lines), or use recipe distill",
            f"{without:,}",
            f"{len(examples):,}",
            spec,
        )


def _check_boxes(recipe: Recipe, boxless: list[str], sources: int) -> None:
    """Some data may go without boxes where answers teach as well, but not all of it."""
    needed = (
        recipe.stage not in PARTS and recipe.target in MARKS and bool(recipe.relevance or recipe.compress)
    )
    if not needed or not boxless or (recipe.stage != "relevance" and len(boxless) < sources):
        return
    remedy = "use target=gradient, which needs none"
    if recipe.stage != "relevance":
        remedy += ", or relevance=0 and compress=0 to learn from answers alone"
    raise ValueError(f"data {boxless[0]!r} has no {recipe.target}, but target is {recipe.target!r}: {remedy}")
