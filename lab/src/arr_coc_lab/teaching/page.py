"""Training pages of the guide: a decoded image with its words and questions, from any source.

open_pages(["pages", "jsonl:mine"], drawn=0.2)    a function from a random generator to such a page

Rendered pages come from a cache (`world.browser.cache`), labelled images from the readers of `data`, drawn
pages (`world.draw_page`) from their seeds.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from PIL import Image, ImageDraw

from arr_coc.data import data_sets, open_data
from arr_coc.files.images import open_image
from arr_coc.files.paths import local_path
from arr_coc.guide.coupling import readable
from arr_coc.relevance.lines import PrintedLine
from arr_coc.train.rows import FileRows
from arr_coc_lab.pictures.labels import Split, pictures
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser.cache import CachedPage, CachedPages
from arr_coc_lab.world.browser.chromium import Box, Word
from arr_coc_lab.world.browser.page import Inquired
from arr_coc_lab.world.dense import draw_dense_page
from arr_coc_lab.world.fonts import TRAIN_FONTS, font
from arr_coc_lab.world.odd import draw_odd_page
from arr_coc_lab.world.page import PAGES, Page
from arr_coc_lab.world.training_pages import STEP

SIDES = (512, 640, 768, 1024)  # typical sides in px of drawn pages
MAX_PIXELS = 4_000_000  # larger labelled images are scaled down
# scenes that "world:odd" and so on name: one thing is odd; a formula, code or a diagram stands among text
SCENES: dict[str, Callable[[int, tuple[int, int], str], Page]] = {
    "odd": draw_odd_page,
    "dense": draw_dense_page,
}
# question families of drawn pages -> kinds of `phrases.KINDS`
KINDS = {
    "table": "value", "gray": "implied", "note": "implied", "small": "implied", "larger": "comparison",
    "left": "comparison",
}  # fmt: skip


class OpenPage(NamedTuple):
    """A page: its RGB image, printed words, questions, and named things with their boxes."""

    image: Image.Image
    words: tuple[Word, ...]
    questions: tuple[Inquired, ...]
    things: tuple[tuple[str, Box], ...] = ()


Draw = Callable[[random.Random], OpenPage]  # draws a page with a random generator


class Pages(Protocol):
    """Pages by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> OpenPage: ...


@dataclass(frozen=True)
class Rendered:
    """The pages of a cache, decoded."""

    pages: CachedPages

    def __len__(self) -> int:
        return len(self.pages)

    def __getitem__(self, index: int) -> OpenPage:
        return opened(self.pages[index])


class Real:
    """The real pictures of a folder that `pictures.fetch` filled, with their print as an OCR read it.

    Raises:
        ValueError: no labelled picture is there.
    """

    def __init__(self, folder: Path, split: Split = "train") -> None:
        self.folder = folder
        self.pictures = [one for one in pictures(split) if (folder / one.file).is_file() and one.questions]
        if not self.pictures:
            raise ValueError(
                f"{str(folder)!r} has no real pictures of split {split}: fetch them with "
                "python -m arr_coc_lab.pictures.fetch FOLDER"
            )

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> OpenPage:
        one = self.pictures[index]
        questions = tuple(Inquired(q.ask, q.text, q.answer, q.boxes) for q in one.questions)
        return OpenPage(open_image(self.folder / one.file), words_of(one.lines), questions)


def words_of(lines: Sequence[PrintedLine]) -> tuple[Word, ...]:
    """Return the words of lines that the guide can read, each with the part of its line's box that its
    characters take.
    """
    made = []
    for text, (x0, y0, x1, y1) in lines:
        step = (x1 - x0) / max(1, len(text))
        for match in re.finditer(r"\S+", text):
            first, last = match.span()
            edges = tuple(x0 + step * place for place in range(first, last + 1))
            if readable((match[0],)):
                made.append(Word(match[0], (edges[0], y0, edges[-1], y1), 0.75 * (y1 - y0), edges))
    return tuple(made)


class DrawnScenes:
    """Scenes of one kind of SCENES, drawn from their numbers, without end; a ValueError for another kind."""

    def __init__(self, kind: str) -> None:
        if kind not in SCENES:
            raise ValueError(f"scenes of {kind!r} can't be drawn; use world:{' or world:'.join(SCENES)}")
        self.draw = SCENES[kind]

    def __len__(self) -> int:
        return PAGES

    def __getitem__(self, index: int) -> OpenPage:
        return adapted(self.draw(index, _drawn_size(random.Random(index), least=512), "train"))


class Labelled:
    """A user's images with questions and evidence boxes; questions without boxes are left out.

    Raises:
        ValueError: `spec` ("NAME:DIR") can't be read, or no question has a box.
    """

    def __init__(self, spec: str) -> None:
        examples = [example for example in open_data(spec, "train", clips=False)[1] if example.boxes]
        if not examples:
            raise ValueError(f"data {spec!r} has no boxes: the guide learns from evidence boxes alone")
        self.rows = FileRows(examples, questions=64, max_pixels=MAX_PIXELS)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> OpenPage:
        item = self.rows[index]
        answers = (row.answers[0] if row.answers else "" for row in item.rows)
        questions = (
            Inquired(row.family or "value", row.question, answer, row.boxes or ())
            for row, answer in zip(item.rows, answers, strict=True)
        )
        return OpenPage(item.image, (), tuple(questions))


def opened(page: CachedPage) -> OpenPage:
    """Decode the image of a cached page."""
    image = Image.open(io.BytesIO(page.png))
    image.load()
    image = image if image.mode == "RGB" else image.convert("RGB")
    return OpenPage(image, page.words, page.questions, page.things)


def drawn_page(rng: random.Random) -> OpenPage:
    """Draw a page of the training split."""
    size = _drawn_size(rng, least=256)
    return adapted(draw_page(rng.randrange(2**31), size, "train", void=False))


def _drawn_size(rng: random.Random, least: int) -> tuple[int, int]:
    """Return the width and height of a drawn page, in px."""
    width, height = (
        max(least, round(rng.choice(SIDES) * rng.uniform(0.8, 1.25) / STEP) * STEP) for _ in "wh"
    )
    return width, height


def adapted(page: Page) -> OpenPage:
    """Convert a drawn page: characters joined to words, families to kinds."""
    questions = (
        Inquired(
            KINDS.get(q.family, q.family),
            q.text,
            q.answer,
            tuple((float(x0), float(y0), float(x1), float(y1)) for x0, y0, x1, y1 in q.evidence),
        )
        for q in page.questions
    )
    things = ((thing.shape, thing.box) for thing in page.things)
    named = tuple((name, (float(x0), float(y0), float(x1), float(y1))) for name, (x0, y0, x1, y1) in things)
    return OpenPage(page.image, tuple(_words(page)), tuple(questions), named)


def _words(page: Page) -> list[Word]:
    """Return the words of a drawn page: touching characters of one line."""
    words: list[Word] = []
    for letter, box in page.glyphs:
        x0, y0, x1, y1 = map(float, box)
        last = words[-1] if words else None
        if last and last.box[1::2] == (y0, y1) and abs(last.box[2] - x0) <= 1:
            words[-1] = Word(
                last.text + letter, (last.box[0], y0, x1, y1), last.size, (*last.edges[:-1], x0, x1)
            )
        else:
            words.append(Word(letter, (x0, y0, x1, y1), 1.2 * (y1 - y0), (x0, x1)))
    return words


def open_source(spec: str) -> Pages:
    """Return the training pages of "real:DIR", "world:odd", "NAME:DIR" or the folder of a cache.

    Raises:
        ValueError: there are none.
    """
    if spec.startswith("world:"):
        return DrawnScenes(spec.removeprefix("world:"))
    if spec.startswith("real:"):
        return Real(local_path(spec.removeprefix("real:")))
    if spec.partition(":")[0].strip().lower() in data_sets() and ":" in spec:
        return Labelled(spec)
    return Rendered(CachedPages(local_path(spec), "train"))


def open_pages(specs: Sequence[str], drawn: float = 0.0) -> Draw:
    """Return a function that draws pages of some sources evenly; a source named twice counts twice.

    `specs` are those of `open_source` (none: all pages are drawn), `drawn` the share of drawn pages.

    Raises:
        ValueError: a source has no pages.
    """
    sources = [open_source(spec) for spec in specs]

    def draw(rng: random.Random) -> OpenPage:
        if not sources or rng.random() < drawn:
            return drawn_page(rng)
        source = rng.choice(sources)
        return source[rng.randrange(len(source))]

    return draw


def easy_page(rng: random.Random, words: Sequence[str], side: int = 512) -> OpenPage:
    """Return a square page of `side` px with lines of random words, each line in one face and size."""
    image = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(image)
    printed: list[Word] = []
    top = 4
    while top < side - 40:
        size = rng.randint(13, 24)
        face = font(rng.choice(TRAIN_FONTS), size)
        left = float(rng.randint(2, 30))
        while True:
            text = rng.choice(words)
            text = text.capitalize() if rng.random() < 0.2 else text
            edges = tuple(left + face.getlength(text[:i]) for i in range(len(text) + 1))
            if edges[-1] > side - 4:
                break
            draw.text((left, top), text, fill="black", font=face)
            printed.append(Word(text, (left, top, edges[-1], top + 1.2 * size), float(size), edges))
            left = edges[-1] + face.getlength(" ") * rng.uniform(1, 2)
        top += round(size * rng.uniform(1.25, 1.8))
    return OpenPage(image, tuple(printed), ())
