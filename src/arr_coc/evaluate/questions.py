"""What is asked: images with their questions, of the drawn world or of a data set on disk.

    world_questions(2000, 1024) -> Asked(image, key, queries), page after page
    data_questions("textvqa:/data/textvqa") -> (data set, [Asked, ...])

Laws: the same arguments give the same questions in the same order; all questions of an image stand together;
every id comes once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from arr_coc.data import Box, DataSet, Example, open_data
from arr_coc.training import rows
from arr_coc.training.targets import CELL, evidence_mask
from arr_coc.world import Question, draw_page


@dataclass(frozen=True)
class Query:
    """One question.

    Attributes:
        id: unique within a run.
        text: as the model is asked, with the data set's prompt.
        answers: the accepted ones.
        family: kind of question, "" where unknown.
        boxes: the evidence, (x0, y0, x1, y1) in px of the image; () where there is none, None where nothing
            is known.
        template: of a drawn page, else "".
    """

    id: str
    text: str
    answers: tuple[str, ...]
    family: str = ""
    boxes: tuple[Box, ...] | None = None
    template: str = ""


@dataclass(frozen=True)
class Asked:
    """One image (an opened one, or a path to open) and everything that is asked about it."""

    image: Image.Image | Path
    key: str
    queries: tuple[Query, ...]


EMPTY = "empty texture"
"""The family of questions about a page that shows texture alone."""


def world_questions(count: int, size: int, per_page: int = 5, split: str = "test") -> Iterator[Asked]:
    """Drawn pages with `count` questions in all, of each page those of the families asked least so far.

    Args:
        count: questions in all.
        size: side of the pages in px.
        per_page: most questions of a page.
        split: "train", "validation" or "test".

    Raises:
        ValueError: an unknown split, or a size out of range.
    """
    tally: Counter[str] = Counter()
    seed = asked = 0
    while asked < count:
        page = draw_page(seed, (size, size), split)
        chosen: list[Question] = []
        for _ in range(min(per_page, len(page.questions), count - asked)):
            rest = [q for q in page.questions if q not in chosen]
            best = min(rest, key=lambda q: tally[q.family])
            tally[best.family] += 1
            chosen.append(best)
        asked += len(chosen)
        if chosen:
            empty = not (page.facts or page.things)  # a page of texture alone: a family of its own
            queries = tuple(
                Query(
                    f"{seed}.{i}",
                    q.text,
                    (q.answer,),
                    EMPTY if empty else q.family,
                    q.evidence,
                    page.template,
                )
                for i, q in enumerate(chosen)
            )
            yield Asked(page.image, f"{split}:{seed}", queries)
        seed += 1


def data_questions(
    spec: str, split: str | None = None, limit: int | None = None
) -> tuple[DataSet, list[Asked]]:
    """The questions of a data set, those about one image together, images in order of first appearance.

    Args:
        spec: `NAME:DIR`, as `arr_coc.data.open_data` takes it.
        split: None for the data set's usual one.
        limit: at most so many questions; None for all.

    Raises:
        ValueError: as `open_data`; there is no question, one has no answer or repeats an id, or the data set
            has no metric.
    """
    data, examples = open_data(spec, split, limit)
    if data.metric is None:
        raise ValueError(
            f"data {spec!r} has no answers to score: use jsonl:DIR with answers, or a public set"
        )
    folder = Path(spec.partition(":")[2].strip()).expanduser()
    images: dict[Path, list[Query]] = {}
    places: dict[str, str] = {}
    for example in examples:
        if not example.answers:
            raise ValueError(
                f"{example.where}: the question has no answer to score: use a split with answers"
            )
        first = places.setdefault(example.id, example.where)
        if first != example.where:
            raise ValueError(f"{example.where} repeats the id {example.id!r} of {first}: number them anew")
        images.setdefault(example.image, []).append(_query(example, data.prompt))
    if not images:
        raise ValueError(f"data {spec!r} has no questions: check the file, or name another split")
    return data, [
        Asked(image, f"{data.name}:{_inside(image, folder)}", tuple(queries))
        for image, queries in images.items()
    ]


def _query(example: Example, prompt: str) -> Query:
    family = example.meta.get("family") or example.meta.get("type") or ""
    return Query(example.id, example.question + prompt, example.answers, family, example.boxes or None)


def _inside(image: Path, folder: Path) -> str:
    """The image's place in its data set: results don't tell where on a disk that lies."""
    return image.relative_to(folder).as_posix() if image.is_relative_to(folder) else image.name


def with_next(asked: Iterable[Asked]) -> Iterator[tuple[Asked, tuple[Query, ...]]]:
    """Each image with the questions of the next one; the last has those of the first, an only one none."""
    first: Asked | None = None
    last: Asked | None = None
    for one in asked:
        if last is None:
            first = one
        else:
            yield last, one.queries
        last = one
    if first is not None and last is not None:
        yield last, () if last is first else first.queries


def shuffled(queries: Sequence[Query], others: Sequence[Query]) -> list[str | None]:
    """For each question one of another image with another text, None where there is none."""
    texts: list[str | None] = []
    for i, query in enumerate(queries):
        turned = [*others[i % max(1, len(others)) :], *others[: i % max(1, len(others))]]
        texts.append(next((other.text for other in turned if other.text != query.text), None))
    return texts


def evidence_cells(boxes: Sequence[Box], grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Cells of which a box covers a part that can be seen.

    Where cells are `CELL` px these are the bundled model's own targets; elsewhere those of the trainer.

    Args:
        boxes: (x0, y0, x1, y1) in px of the image.
        grid: (H, W) cells.
        size: (width, height) of the image in px.

    Returns:
        Bool [H, W].
    """
    height, width = grid
    whole = all(float(v).is_integer() for box in boxes for v in box)
    if whole and size == (width * CELL, height * CELL):
        rects = tuple((int(x0), int(y0), int(x1), int(y1)) for x0, y0, x1, y1 in boxes)
        return torch.from_numpy(evidence_mask(rects, height, width))
    return rows.evidence_cells(boxes, grid, size)
