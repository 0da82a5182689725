"""Training rows: images with their questions, answers and evidence, and the sources of a run in turns.

    FileRows(examples)[0]                          # ImageRows(image, (Row(question, ...), ...), where)
    rows = open_rows(load_recipe("relevance"))     # a data set of steps x batch items

An item depends on the recipe and its number alone, so a killed run resumes with the same items.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from arr_coc.data import Box, Example, open_data
from arr_coc.data.evidence import all_evidence, evidence_cells, map_cells
from arr_coc.data.maps import read_map
from arr_coc.data.record import check_evidence
from arr_coc.files.images import MIN_SIDE, open_image
from arr_coc.files.plugins import plugin
from arr_coc.files.validation import record_name
from arr_coc.train.processes import is_main_process
from arr_coc.train.recipe import MARKS, AnswerRecipe, LayerRecipe, Recipe, RelevanceRecipe

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One question about an image."""

    question: str  # with the prompt of the data set
    answers: tuple[str, ...]  # the accepted ones; empty if unknown
    boxes: tuple[Box, ...] | None  # evidence, (x0, y0, x1, y1) in px; () if there is none, None if unknown
    family: str  # kind of question, "" if unknown
    weight: float  # in a loss
    where: str  # place in the data, for messages
    map: Tensor | None = field(default=None, compare=False)  # relevance [h, w] in [0, 1], on any grid

    @property
    def marked(self) -> bool:
        return self.boxes is not None or self.map is not None

    def evidence(self, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
        """Evidence cells, bool [H, W] of `grid`, for an image of `size` (width, height) in px."""
        return all_evidence(self.boxes or (), self.map, grid, size)

    def soft_map(self, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
        """Relevance of the cells, float [H, W] in [0, 1]: the map's own values, and 1 in boxes."""
        boxes = evidence_cells(self.boxes or (), grid, size).float()
        return boxes if self.map is None else boxes.maximum(map_cells(self.map, grid))


@dataclass(frozen=True)
class ImageRows:
    """An upright RGB image and its questions; `number` counts the items of a run, from 0."""

    image: Image.Image
    rows: tuple[Row, ...]
    where: str
    number: int | None = None


class FileRows(Dataset[ImageRows]):
    """Questions from disk, grouped by image, in the order in which images first come.

    `prompt` follows every question; an item has at most `questions`; `weights` are by family, else 1; images
    above `max_pixels` are scaled down, with their boxes.
    """

    shuffled = True  # each epoch has an order of its own

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
        self.images = len(images)
        self.items = [
            group[i : i + questions] for group in images.values() for i in range(0, len(group), questions)
        ]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> ImageRows:
        """Item `index`; ValueError with the question's place if its image, map or box is invalid."""
        examples = self.items[index]
        try:
            image = open_image(examples[0].image)
        except ValueError as error:
            raise ValueError(f"{examples[0].where}: {error}") from error
        rows = tuple(self._row(example, image.size) for example in examples)
        item = ImageRows(image, rows, examples[0].where)
        return item if self.max_pixels is None else limit_pixels(item, self.max_pixels)

    def _row(self, example: Example, size: tuple[int, int]) -> Row:
        check_evidence(example, size)
        family = family_of(example)
        weight = self.weights.get(family, 1.0)
        question, boxes = example.question + self.prompt, example.boxes or None
        relevance = None if example.map is None else torch.from_numpy(read_map(example.map, example.where))
        return Row(question, example.answers, boxes, family, weight, example.where, relevance)


def family_of(example: Example) -> str:
    """The kind of a question: the example's "family", else its "type", else ""."""
    return example.meta.get("family") or example.meta.get("type") or ""


def limit_pixels(item: ImageRows, max_pixels: int) -> ImageRows:
    """Scale an item's image and boxes down to at most `max_pixels`, in proportion."""
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


class RowSource(Protocol):
    """A data set of images with questions; `shuffled` ones are reordered each epoch."""

    shuffled: bool
    images: int

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> ImageRows: ...


class Turns(Dataset[ImageRows]):
    """Several sources as one data set of `length` items: they take turns, in an order drawn for each round.

    `turns` are the names of a round; a source named twice has two turns in it.
    """

    def __init__(
        self, sources: Mapping[str, RowSource], turns: Sequence[str], length: int, seed: int = 0
    ) -> None:
        self.sources, self.turns, self.length, self.seed = dict(sources), list(turns), length, seed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> ImageRows:
        if not 0 <= index < self.length:
            raise IndexError(index)
        # From the index alone: a resumed run, and every worker, computes the same item without history.
        rounds, turn = divmod(index, len(self.turns))
        order = random.Random(f"round {rounds} of {self.seed}").sample(self.turns, len(self.turns))
        name = order[turn]
        number = rounds * self.turns.count(name) + order[:turn].count(name)
        source = self.sources[name]
        if source.shuffled:
            epoch, position = divmod(number, len(source))  # `number` counts this source's items
            number = _order(len(source), f"epoch {epoch} of {name}, {self.seed}")[position]
        return replace(source[number], number=index)

    def images(self) -> dict[str, int]:
        """Most different images that a run reads, by kind of source ("world", "folder", ...)."""
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
    """The `recipe.steps` x `recipe.batch` items of a run; files are read now, images on access.

    Stage relevance leaves out questions without the target's boxes or maps. Stages answers and hard use the
    model's own answers where there are none, with a warning.

    Raises:
        ValueError: a reader's; a data set has no questions, or not the boxes or maps that are the target; or
            no question is of a hard family.
    """
    length = recipe.steps * recipe.batch
    marks = recipe.target if isinstance(recipe, LayerRecipe) and recipe.target in MARKS else None
    sources: dict[str, RowSource] = {}
    families: set[str] = set()
    unmarked: list[str] = []
    for spec in dict.fromkeys(recipe.data):
        if ":" not in spec:  # rows that are made, not read
            sources[spec], made = plugin("rows", spec)(recipe, length)
            families |= made
            continue
        data, readings = open_data(spec, recipe.split, recipe.limit, clips=False)
        examples = rest_of(readings, recipe.hold_out)
        if not examples:
            raise ValueError(f"data {spec!r} has no questions: check the file, or name another split")
        if isinstance(recipe, AnswerRecipe) and recipe.answer:
            _note_answers(spec, examples)
        marked = [example for example in examples if example.map or (example.boxes and marks != "maps")]
        if not marked:
            unmarked.append(spec)
        families |= {family_of(example) for example in examples}
        if marks and isinstance(recipe, RelevanceRecipe):
            examples = marked
        sources[spec] = FileRows(examples, data.prompt, recipe.questions, recipe.weights, recipe.max_pixels)
    if marks and isinstance(recipe, LayerRecipe) and (recipe.relevance or recipe.compress):
        _check_marks(recipe, unmarked, len(sources))
    if recipe.stage == "hard" and not families & set(recipe.weights):
        present = ", ".join(sorted(families - {""})) or "unknown"
        remedy = 'write "family" into the questions, or use stage "answers"'
        raise ValueError(
            f"hard has {', '.join(recipe.weights) or 'no family'}, but the families of the data are: "
            f"{present}; {remedy}"
        )
    return Turns(sources, recipe.data, length, recipe.seed)


def rest_of(examples: Iterable[Example], every: int) -> list[Example]:
    """The questions about all but every N-th image, which `arr-coc eval --part N/N` measures on; 0: all."""
    numbers: dict[Path, int] = {}  # images in the order in which they first come
    pairs = [(numbers.setdefault(example.image, len(numbers)), example) for example in examples]
    return [example for number, example in pairs if not every or number % every != every - 1]


def _note_answers(spec: str, examples: Sequence[Example]) -> None:
    without = sum(not example.answers for example in examples)
    if without and is_main_process():
        logger.warning(
            "%s of %s questions of data %r have no answer: the model's own, read with all tokens, stand in; "
            "name data with answers (jsonl:DIR reads those of the lines), or use recipe distill",
            f"{without:,}",
            f"{len(examples):,}",
            spec,
        )


def _check_marks(recipe: LayerRecipe, unmarked: list[str], sources: int) -> None:
    """Refuse data without the target's boxes or maps, unless answers train too and other data has them."""
    answers_teach = isinstance(recipe, AnswerRecipe)
    if not unmarked or (answers_teach and len(unmarked) < sources):
        return
    remedy = "use target=gradient, which needs none"
    if answers_teach:
        remedy += ", or relevance=0 and compress=0 to learn from answers alone"
    raise ValueError(
        f"data {unmarked[0]!r} has no {recipe.target}, but target is {recipe.target!r}: {remedy}"
    )
