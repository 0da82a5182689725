"""A cache of rendered pages on disk: a page is rendered once and read many times.

    fill(folder, "train", range(2000))         renders what is missing: some four pages a second on one core
    pages = CachedPages(folder, "train")       pages[7].image, pages[7].questions

A page is `<split>/<number>.png` and `.json`, fixed by split and number; the second file is written last, so
a page that a killed run left incomplete is rendered again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from arr_coc.files.atomic import write_atomic
from arr_coc_lab.world.browser.chromium import Box, Chromium, Word
from arr_coc_lab.world.browser.page import Inquired, RenderedPage, render_page

VERSION = 1  # of the files' form; pages of another version are rendered again


@dataclass(frozen=True)
class CachedPage:
    """A rendered page as it was read from disk; the attributes are those of `RenderedPage`."""

    png: bytes
    questions: tuple[Inquired, ...]
    words: tuple[Word, ...]
    type: str
    seed: int
    split: str
    things: tuple[tuple[str, Box], ...] = ()

    @property
    def image(self) -> Image.Image:
        """The picture, RGB."""
        return Image.open(io.BytesIO(self.png)).convert("RGB")


def fill(folder: Path, split: str, seeds: Iterable[int], name: str | None = None) -> Iterator[int]:
    """Render the pages of some seeds that the folder lacks; yields each seed when its page is there.

    `name` is of one page type; None: all.
    """
    place = folder / split
    place.mkdir(parents=True, exist_ok=True)
    with Chromium() as chromium:
        for seed in seeds:
            if not (place / f"{seed}.json").is_file():
                write(place / f"{seed}", render_page(chromium, seed, split, name))
            yield seed


def write(place: Path, page: RenderedPage) -> None:
    """Write a page to `<place>.png` and `<place>.json`."""
    record = {
        "version": VERSION,
        "type": page.type,
        "seed": page.seed,
        "split": page.split,
        "words": page.words,
        "things": page.things,
        "questions": [(q.kind, q.text, q.answer, q.evidence) for q in page.questions],
    }
    write_atomic(page.png, place.with_suffix(".png"))
    write_atomic(json.dumps(record).encode(), place.with_suffix(".json"))


def read(place: Path) -> CachedPage:
    """Return the page of `<place>.png` and `<place>.json`."""
    record = json.loads(place.with_suffix(".json").read_bytes())
    return CachedPage(
        png=place.with_suffix(".png").read_bytes(),
        questions=tuple(
            Inquired(k, t, a, tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in e))
            for k, t, a, e in record["questions"]
        ),
        words=tuple(Word(t, tuple(b), s, tuple(e)) for t, b, s, e in record["words"]),
        type=record["type"],
        seed=record["seed"],
        split=record["split"],
        things=tuple((name, (x0, y0, x1, y1)) for name, (x0, y0, x1, y1) in record.get("things", ())),
    )


class CachedPages:
    """The pages of a split in a cache, in the order of their seeds.

    Raises:
        ValueError: there are none.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self.places = sorted((folder / split).glob("*.json"), key=lambda path: int(path.stem))
        if not self.places:
            raise ValueError(f"{str(folder / split)!r} has no pages: render them with `arr-coc world`")

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> CachedPage:
        return read(self.places[index])
