"""Images with their questions, of the drawn world or of a data set on disk.

    world_questions(2000, 1024) -> ImageQueries(image, key, queries), page after page
    data_questions("textvqa:/data/textvqa") -> (data set, [ImageQueries, ...])

Laws: the same arguments give the same questions in the same order; all questions of an image stand together;
every id comes once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from arr_coc.data import Box, DataSet, Example, open_data
from arr_coc.files.paths import local_path
from arr_coc_lab.world import Question, draw_page, pages_of


@dataclass(frozen=True)
class Query:
    """One question.

    Attributes:
        id: unique within a run.
        text: the question with the data set's prompt.
        answers: the accepted ones.
        family: kind of question, "" where unknown.
        boxes: the evidence, (x0, y0, x1, y1) in px of the image; () where there is none, None where it is
            unknown.
        template: of a drawn page, else "".
        map: file of a relevance map, whose cells above half are evidence as well; None: there is none.
        example: of a data set, as its reader gave it.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    family: str = ""
    boxes: tuple[Box, ...] | None = None
    template: str = ""
    map: Path | None = None
    example: Example | None = None


@dataclass(frozen=True)
class ImageQueries:
    """One image and its questions.

    Attributes:
        image: an opened image, or a path to open.
        key: the image's name in result files.
        queries: the questions.
        possible: the boxes of every question that the image could be asked, these among them, where that is
            known; else ().
    """

    image: Image.Image | Path
    key: str
    queries: tuple[Query, ...]
    possible: tuple[tuple[Box, ...], ...] = ()


EMPTY = "empty texture"
"""The family of questions about a page that shows texture alone."""


def world_questions(
    count: int, size: int, per_page: int = 5, split: str = "test", seed: int = 0
) -> Iterator[ImageQueries]:
    """Drawn pages with `count` questions in all, of each page those of the families that are rarest so far.

    Args:
        count: questions in all.
        size: side of the pages in px.
        per_page: most questions of a page.
        split: "train", "validation" or "test".
        seed: which pages of the split; another seed draws other ones.

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
            best = min(rest, key=lambda q: tally[q.family])
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
    spec: str, split: str | None = None, limit: int | None = None, own_answers: bool = False
) -> tuple[DataSet, list[ImageQueries]]:
    """The questions of a data set, those about one image together, images in order of first appearance.

    Args:
        spec: `NAME:DIR`, as `arr_coc_lab.data.open_data` takes it.
        split: None for the data set's usual one.
        limit: at most so many questions; None for all.
        own_answers: questions may be without answers, and a data set without a metric.

    Raises:
        ValueError: as `open_data`; there is no question, one has no answer or repeats an id, or the data set
            has no metric.
    """
    data, examples = open_data(spec, split, limit, clips=False)
    if data.metric is None and not own_answers:
        raise ValueError(
            f"data {spec!r} has no answers to score: use jsonl:DIR with answers, or a public set, or the "
            "model's own answers (--own-answers)"
        )
    images: dict[Path, list[Query]] = {}
    for example in examples:
        if not example.answers and not own_answers:
            raise ValueError(
                f"{example.where}: the question has no answer to score: use a split with answers"
            )
        images.setdefault(example.image, []).append(_query(example, data.prompt))
    if not images:
        raise ValueError(f"data {spec!r} has no questions: check the file, or name another split")
    return data, [
        ImageQueries(image, image_key(spec, image), tuple(queries)) for image, queries in images.items()
    ]


def _query(example: Example, prompt: str) -> Query:
    family = example.meta.get("family") or example.meta.get("type") or ""
    text = example.question + prompt
    return Query(
        example.id, text, example.answers, family, example.boxes or None, map=example.map, example=example
    )


def image_key(spec: str, image: Path) -> str:
    """The name of a data set's image in result files: they don't tell where on a disk the data lies.

    Args:
        spec: `NAME:DIR`, as `arr_coc_lab.data.open_data` takes it.
        image: a path that its reader gave.
    """
    name, _, place = spec.partition(":")
    folder = local_path(place.strip())
    folder = folder.parent if folder.is_file() else folder
    inside = image.relative_to(folder).as_posix() if image.is_relative_to(folder) else image.name
    return f"{name.strip().lower()}:{inside}"


def with_next(images: Iterable[ImageQueries]) -> Iterator[tuple[ImageQueries, tuple[Query, ...]]]:
    """Each image with the questions of the next one; the last has those of the first, an only one none."""
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
