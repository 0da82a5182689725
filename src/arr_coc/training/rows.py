"""What one training step sees: an image, and what is asked about it.

    rows = open_rows(load_recipe("relevance"))    # a data set of steps x batch items
    rows[0]                                       # ImageRows(image, (Row(question, answers, boxes, ...), ..))

Laws: an item depends on the recipe and its number alone, so a killed run goes on with the items it would have
had; drawn pages never repeat, and those of two seeds are disjoint (and from those of the other stages); every
image of a file comes once before one comes again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from PIL import Image
from torch.utils.data import Dataset

from arr_coc.data import Box, Example, open_data
from arr_coc.data.evidence import evidence_cells as evidence_cells
from arr_coc.images import MIN_SIDE, open_image
from arr_coc.training.bundled import CELL
from arr_coc.training.language import choose
from arr_coc.training.recipe import WORLD, Recipe
from arr_coc.world import draw_page
from arr_coc.world.vocabulary import PARAPHRASES

FIRST_PAGE, PAGES = 90_000_000, 1_000_000_000
"""Where the seeds of drawn pages begin, and how far those of two recipe seeds are apart."""


@dataclass(frozen=True)
class Row:
    """One question about an image.

    Attributes:
        question: as the model is asked, with the prompt of the data set.
        answers: the accepted ones; empty where none is known.
        boxes: the evidence, (x0, y0, x1, y1) in px of the image; () where it is known that there is none,
            None where nothing is known.
        family: kind of question, "" where unknown.
        weight: of the row in a loss.
        where: place of the question, for messages.
    """

    question: str
    answers: tuple[str, ...]
    boxes: tuple[Box, ...] | None
    family: str
    weight: float
    where: str


@dataclass(frozen=True)
class ImageRows:
    """An RGB image and its questions (none where nothing can be asked of a drawn page)."""

    image: Image.Image
    rows: tuple[Row, ...]
    where: str


class WorldRows(Dataset[ImageRows]):
    """Drawn pages of the training split; page i is fixed by the seed and i.

    Args:
        length: how many pages.
        sizes: typical sides in px; a page has one of them, stretched by up to a quarter in either direction.
        questions: most questions of a page, of families as even as can be.
        seed: 0 or more; no page belongs to two seeds.
        weights: family -> weight, 1 for the others.
    """

    def __init__(
        self,
        length: int,
        sizes: Sequence[int] = (512, 768, 1024),
        questions: int = 16,
        seed: int = 0,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.length, self.sizes, self.questions = length, sizes, questions
        self.first, self.weights = seed * PAGES, dict(weights or {})

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> ImageRows:
        if not 0 <= index < self.length:
            raise IndexError(index)
        rng = random.Random(self.first + index)
        side, stretch = rng.choice(self.sizes) // CELL, rng.uniform(-0.25, 0.25)
        h, w = max(4, round(side * math.exp(stretch))), max(4, round(side * math.exp(-stretch)))
        seed = self.first + FIRST_PAGE + index
        page = draw_page(seed, (w * CELL, h * CELL), "train", void=False)
        where = f"world page {seed}"
        rows = tuple(
            Row(q.text, (q.answer,), q.evidence, q.family, self.weights.get(q.family, 1.0), where)
            for q in choose(rng, list(page.questions), self.questions)
        )
        return ImageRows(page.image, rows, where)


class FileRows(Dataset[ImageRows]):
    """Questions from disk, those about one image together, in the order in which images first come.

    Args:
        examples: of a reader of `arr_coc.data`.
        prompt: what follows every question.
        questions: most questions of an item; an image with more comes more than once.
        weights: family -> weight, 1 for the others.
        max_pixels: larger images are scaled down, and their boxes with them.
    """

    def __init__(
        self,
        examples: Iterable[Example],
        prompt: str = "",
        questions: int = 16,
        weights: Mapping[str, float] | None = None,
        max_pixels: int | None = None,
    ) -> None:
        self.prompt, self.weights, self.max_pixels = prompt, dict(weights or {}), max_pixels
        images: dict[str, list[Example]] = {}
        for example in examples:
            images.setdefault(str(example.image), []).append(example)
        self.items = [
            asked[i : i + questions] for asked in images.values() for i in range(0, len(asked), questions)
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> ImageRows:
        """Item `index`.

        Raises:
            ValueError: its image can't be read, or a box lies outside of it; names the question's place.
        """
        asked = self.items[index]
        try:
            image = open_image(asked[0].image)
        except ValueError as error:
            raise ValueError(f"{asked[0].where}: {error}") from error
        rows = tuple(self._row(example, image.size) for example in asked)
        item = ImageRows(image, rows, asked[0].where)
        return item if self.max_pixels is None else shrink(item, self.max_pixels)

    def _row(self, example: Example, size: tuple[int, int]) -> Row:
        width, height = size
        for box in example.boxes:
            if box[0] >= width or box[1] >= height or box[2] <= 0 or box[3] <= 0:
                raise ValueError(
                    f"{example.where}: box {list(box)} lies outside of {str(example.image)!r}, which is "
                    f"{width}x{height} px: give pixels of the upright image"
                )
        family = family_of(example)
        weight = self.weights.get(family, 1.0)
        question, boxes = example.question + self.prompt, example.boxes or None
        return Row(question, example.answers, boxes, family, weight, example.where)


def family_of(example: Example) -> str:
    """What the data set calls the kind of a question: its "family", else its "type", else ""."""
    return example.meta.get("family") or example.meta.get("type") or ""


def shrink(item: ImageRows, max_pixels: int) -> ImageRows:
    """The item with an image of at most `max_pixels`, its shape kept, and boxes to match."""
    width, height = item.image.size
    if width * height <= max_pixels:
        return item
    scale = math.sqrt(max_pixels / (width * height))
    w, h = (max(MIN_SIDE, math.floor(side * scale)) for side in (width, height))
    x, y = w / width, h / height
    rows = tuple(
        row
        if row.boxes is None
        else replace(row, boxes=tuple((a * x, b * y, c * x, d * y) for a, b, c, d in row.boxes))
        for row in item.rows
    )
    return replace(item, image=item.image.resize((w, h), Image.Resampling.LANCZOS), rows=rows)


class Turns(Dataset[ImageRows]):
    """Several sources as one data set of a given length: they take turns, in an order drawn for each round.

    A source that is named twice has two turns in a round. Files are gone through epoch by epoch, each in an
    order of its own; drawn pages go on for ever.

    Args:
        sources: by name.
        turns: the names of one round.
        length: how many items.
        seed: of the orders.
    """

    def __init__(
        self, sources: Mapping[str, WorldRows | FileRows], turns: Sequence[str], length: int, seed: int = 0
    ) -> None:
        self.sources, self.turns, self.length, self.seed = dict(sources), list(turns), length, seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> ImageRows:
        if not 0 <= index < self.length:
            raise IndexError(index)
        done, turn = divmod(index, len(self.turns))
        order = random.Random(f"round {done} of {self.seed}").sample(self.turns, len(self.turns))
        name = order[turn]
        number = done * self.turns.count(name) + order[:turn].count(name)
        source = self.sources[name]
        if isinstance(source, WorldRows):
            return source[number]
        epoch, place = divmod(number, len(source))
        return source[_order(len(source), f"epoch {epoch} of {name}, {self.seed}")[place]]


@lru_cache(maxsize=16)
def _order(length: int, seed: str) -> list[int]:
    return random.Random(seed).sample(range(length), length)


def open_rows(recipe: Recipe) -> Turns:
    """The items of a run, `recipe.steps` x `recipe.batch` of them; files are read now, images when they come.

    In stage relevance with boxes as target, questions without boxes teach nothing and are left out.

    Raises:
        ValueError: what a reader raises; a data set without questions; boxes are the target and there are
            none; no question is of a hard family.
    """
    length = recipe.steps * recipe.batch
    weights = recipe.hard if recipe.stage == "hard" else {}
    sources: dict[str, WorldRows | FileRows] = {}
    families: set[str] = set()
    boxless: list[str] = []
    for spec in dict.fromkeys(recipe.data):
        if spec == WORLD:
            sources[spec] = WorldRows(length, recipe.sizes, recipe.questions, recipe.seed, weights)
            families |= set(PARAPHRASES)
            continue
        data, found = open_data(spec, recipe.split, recipe.limit)
        examples = list(found)
        if not examples:
            raise ValueError(f"data {spec!r} has no questions: check the file, or name another split")
        boxed = [example for example in examples if example.boxes]
        if not boxed:
            boxless.append(spec)
        families |= {family_of(example) for example in examples}
        if recipe.stage == "relevance" and recipe.target == "boxes":
            examples = boxed
        sources[spec] = FileRows(examples, data.prompt, recipe.questions, weights, recipe.max_pixels)
    _check_boxes(recipe, boxless, len(sources))
    if recipe.stage == "hard" and not families & set(recipe.hard):
        known, asked = ", ".join(sorted(families - {""})) or "unknown", ", ".join(recipe.hard) or "no family"
        remedy = 'write "family" into the questions, or use stage "answers"'
        raise ValueError(f"hard has {asked}, but the families of the data are: {known}; {remedy}")
    return Turns(sources, recipe.data, length, recipe.seed)


def _check_boxes(recipe: Recipe, boxless: list[str], sources: int) -> None:
    """Some data may go without boxes where answers teach as well, but not all of it."""
    wanted = recipe.target == "boxes" and bool(recipe.relevance or recipe.compress)
    if not wanted or not boxless or (recipe.stage != "relevance" and len(boxless) < sources):
        return
    remedy = "use target=gradient, which needs none"
    if recipe.stage != "relevance":
        remedy += ", or relevance=0 and compress=0 to learn from answers alone"
    raise ValueError(f"data {boxless[0]!r} has no boxes, but target is 'boxes': {remedy}")
