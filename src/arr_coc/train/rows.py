"""Training rows: an image with its questions, answers and evidence boxes, from files of the user's.

    FileRows(examples)[0]    # ImageRows(image, (Row(question, answers, boxes, ...), ...), where)

Questions about one image stand together. Drawn pages are in `drawn`, the items of a whole run in `sources`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from arr_coc.data import Box, Example
from arr_coc.data.evidence import all_evidence, evidence_cells, map_cells, read_map
from arr_coc.data.record import check_evidence
from arr_coc.files.images import MIN_SIDE, open_image


@dataclass(frozen=True)
class Row:
    """One question about an image.

    Attributes:
        question: as the model is asked, with the prompt of the data set.
        answers: the accepted ones; empty where none is known.
        boxes: the evidence, (x0, y0, x1, y1) in px of the image; () where it is known that there is none,
            None where nothing is known.
        map: relevance [h, w] in [0, 1] over the whole image, of any grid; None where there is none.
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
    map: Tensor | None = field(default=None, compare=False)

    @property
    def marked(self) -> bool:
        """Whether it is known where the evidence is."""
        return self.boxes is not None or self.map is not None

    def evidence(self, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
        """The evidence cells: bool [H, W], none where nothing is known.

        Args:
            grid: (H, W) cells.
            size: (width, height) of the image in px.
        """
        return all_evidence(self.boxes or (), self.map, grid, size)

    def soft_map(self, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
        """The relevance of cells: float [H, W] in [0, 1], the map's own values and 1 in boxes."""
        boxes = evidence_cells(self.boxes or (), grid, size).float()
        return boxes if self.map is None else boxes.maximum(map_cells(self.map, grid))


@dataclass(frozen=True)
class ImageRows:
    """An RGB image and its questions (none where nothing can be asked of a drawn page).

    Attributes:
        image: upright, RGB.
        rows: its questions.
        where: its place, for messages.
        number: of the item in a run, from 0; what a step draws for it depends on this and the seed. None
            outside of a run.
    """

    image: Image.Image
    rows: tuple[Row, ...]
    where: str
    number: int | None = None


class FileRows(Dataset[ImageRows]):
    """Questions from disk, those about one image together, in the order in which images first come.

    Args:
        examples: of a reader of `arr_coc_lab.data`.
        prompt: what follows every question.
        questions: most questions of an item; an image with more comes more than once.
        weights: family -> weight, 1 for the others.
        max_pixels: larger images are scaled down, and their boxes with them.
    """

    shuffled = True
    """A run goes through the items epoch by epoch, each in an order of its own."""

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
        """Item `index`.

        Raises:
            ValueError: its image or map can't be read, or a box is not one of it; names the question's place.
        """
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
    """What the data set calls the kind of a question: its "family", else its "type", else ""."""
    return example.meta.get("family") or example.meta.get("type") or ""


def limit_pixels(item: ImageRows, max_pixels: int) -> ImageRows:
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
