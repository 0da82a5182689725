"""Images with their questions, of the drawn world or of a data set on disk.

    world_questions(2000, 1024) -> ImageQueries(image, key, queries), page after page
    data_questions("textvqa:/data/textvqa") -> (data set, [ImageQueries, ...])

Equal arguments give equal questions in equal order; every id comes once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from arr_coc.data import Box, DataSet, Example
from arr_coc.files.paths import local_path
from arr_coc_lab.data.folder import open_scored
from arr_coc_lab.world import Question, draw_page, pages_of


@dataclass(frozen=True)
class Query:
    """One question."""

    id: str  # unique within a run
    text: str  # the question with the data set's prompt
    answers: tuple[str, ...]  # the accepted ones
    family: str = ""  # kind of question, "" where unknown
    # the evidence, (x0, y0, x1, y1) in px of the image; None where it is unknown
    boxes: tuple[Box, ...] | None = None
    template: str = ""  # of a drawn page, else ""
    map: Path | None = None  # file of a relevance map, whose cells above half are evidence as well
    example: Example | None = None  # of a data set, as its reader gave it


@dataclass(frozen=True)
class ImageQueries:
    """One image (opened, or a path), its name in result files and its questions.

    `possible` holds the boxes of every question that the image could be asked, where that is known.
    """

    image: Image.Image | Path
    key: str
    queries: tuple[Query, ...]
    possible: tuple[tuple[Box, ...], ...] = ()


EMPTY = "empty texture"  # the family of questions about a page of texture alone


def world_questions(
    count: int, size: int, per_page: int = 5, split: str = "test", seed: int = 0
) -> Iterator[ImageQueries]:
    """Drawn pages of `size` px with `count` questions in all, at most `per_page` each, rarest families first.

    Raises:
        ValueError: an unknown split, or a size out of range.
    """
    tally: Counter[str] = Counter()
    total = 0
    for number in pages_of(seed):
        if total == count:
            return
        page = draw_page(number, (size, size), split)
        chosen: list[Question] = []
        for _ in range(min(per_page, len(page.questions), count - total)):
            rest = [q for q in page.questions if q not in chosen]
            best = min(rest, key=lambda q: tally[q.family])  # the rarest family so far
            tally[best.family] += 1
            chosen.append(best)
        total += len(chosen)
        if chosen:
            empty = not (page.facts or page.things)  # a page of texture alone: a family of its own
            queries = tuple(
                Query(
                    f"{number}.{i}",
                    q.text,
                    (q.answer,),
                    EMPTY if empty else q.family,
                    q.evidence,
                    page.template,
                )
                for i, q in enumerate(chosen)
            )
            possible = tuple(q.evidence for q in page.questions)
            yield ImageQueries(page.image, f"{split}:{number}", queries, possible)


def data_questions(
    spec: str,
    split: str | None = None,
    limit: int | None = None,
    own_answers: bool = False,
    prompt: str | None = None,
) -> tuple[DataSet, list[ImageQueries]]:
    """Return the first `limit` questions of a data set `NAME:DIR`, grouped by image in order of first
    appearance.

    `prompt` is a text with {question} in it; None: the data set's own.

    Raises:
        ValueError: as `open_data`; there is no question, one repeats an id, or, unless `own_answers`, one has
            no answer or the data set no metric.
    """
    data, examples = open_scored(spec, split, limit, own_answers)
    images: dict[Path, list[Query]] = {}
    for example in examples:
        if not example.answers and not own_answers:
            raise ValueError(
                f"{example.where}: the question has no answer to score: use a split with answers"
            )
        images.setdefault(example.image, []).append(_query(example, data, prompt))
    if not images:
        raise ValueError(f"data {spec!r} has no questions: check the file, or name another split")
    return data, [
        ImageQueries(image, image_key(spec, image), tuple(queries)) for image, queries in images.items()
    ]


def _query(example: Example, data: DataSet, prompt: str | None = None) -> Query:
    family = next(filter(None, map(example.meta.get, ("family", "type", *data.classes))), "")
    own = example.question + data.prompt
    text = own if prompt is None else prompt.replace("{question}", example.question)
    return Query(
        example.id, text, example.answers, family, example.boxes or None, map=example.map, example=example
    )


def image_key(spec: str, image: Path) -> str:
    """Return the name of a data set's image in result files, without the folder where the data lies."""
    name, _, place = spec.partition(":")
    folder = local_path(place.strip())
    folder = folder.parent if folder.is_file() else folder
    inside = image.relative_to(folder).as_posix() if image.is_relative_to(folder) else image.name
    return f"{name.strip().lower()}:{inside}"


def with_next(images: Iterable[ImageQueries]) -> Iterator[tuple[ImageQueries, tuple[Query, ...]]]:
    """Yield each image with the questions of the next one; the last has those of the first, an only one
    none.
    """
    first: ImageQueries | None = None
    last: ImageQueries | None = None
    for one in images:
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
