"""The live view: which cells the guide would keep, without a model, while a question is typed.

The guide's encoding of a picture is kept with its tab; each new question runs only the guide's head.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image

from arr_coc.app.state import EncodedMemory, SeenPicture, Tab
from arr_coc.files.images import ImageSource, open_image
from arr_coc.guide.coupling import fitted
from arr_coc.pixels import Packed, find_page
from arr_coc.relevance.source import guide_view
from arr_coc.selector import Selector
from arr_coc.trace.evidence import likely_units, read_guidance, scaled
from arr_coc.trace.view import look_view, picture_view

MAX_QUESTION_LENGTH = 2000  # characters of a question that are read
SHOWN = 1024  # longest side in px of the picture that is sent to the page


class Looking:
    """Draws live views, one at a time; `guide` is a folder (None: the bundled one)."""

    def __init__(self, encoded: EncodedMemory, guide: Path | None = None) -> None:
        self.encoded, self.guide = encoded, guide
        self._lock = Lock()
        self._first: dict[str, Any] | None = None

    def view(self, tab: Tab, image: ImageSource, question: str, budget: float | str) -> dict[str, Any]:
        """Return the viewer's input for a question about a tab's picture, whose encoding is kept with the
        tab.

        `budget` is as in `Session.ask`.

        Raises:
            ValueError: the picture can't be read, or the question or the guide is missing.
        """
        with self._lock:
            return live_view(self._record(tab, image), question, budget)

    def pack(self, tab: Tab, image: ImageSource, pack: Callable[[SeenPicture], Packed]) -> Packed:
        """Return what `pack` makes with a tab's picture, whose encoding is kept with the tab.

        Raises:
            ValueError: the picture can't be read, the guide is missing, or `pack` raises it.
        """
        with self._lock:
            return pack(self._record(tab, image))

    def _record(self, tab: Tab, image: ImageSource) -> SeenPicture:
        if tab.record is None or not same(tab.record.source, image):
            tab.record = None  # free the old encoding first
            tab.record = see(image, self.guide)
        self.encoded.use(tab)
        return tab.record

    def first(self, image: ImageSource, question: str, budget: float | str) -> dict[str, Any]:
        """Return the view of the sample that all tabs show first, computed once."""
        with self._lock:
            if self._first is None:
                self._first = live_view(see(image, self.guide), question, budget)
            return self._first

    def end(self, patience: float = 0.0) -> bool:
        """Refuse further work; whether some still runs after `patience` seconds."""
        # The lock stays taken: a thread inside torch would abort the process when it ends.
        return not self._lock.acquire(timeout=patience)


def same(one: ImageSource, other: ImageSource) -> bool:
    """Return whether two sources are the same object or the same path."""
    return one is other or (isinstance(one, str) and one == other)


def see(source: ImageSource, guide: Path | None = None) -> SeenPicture:
    """Open a picture and encode it with a guide."""
    image = open_image(source).convert("RGB")
    selector = Selector.from_pretrained(guide)
    grid = selector.sizing.grid(image.height, image.width)  # (H, W) of the full image, as in the command line
    size = fitted(*image.size)
    if size != image.size:  # as large as the guide reads it: it stays in memory
        image = image.resize(size, Image.Resampling.BILINEAR)
    small = image.copy()
    small.thumbnail((SHOWN, SHOWN))
    selector.guided.encode(image, grid)
    return SeenPicture(source, image, grid, selector, picture_view(small), find_page(image))


def live_view(record: SeenPicture, question: str, budget: float | str) -> dict[str, Any]:
    """Return the view of a question about an encoded picture."""
    question = question[:MAX_QUESTION_LENGTH].strip()
    decision = record.decide(record.image, question, budget)
    allocation, coupling = decision.allocations[0], decision.coupling
    guidance, guided = None, record.selector.guided
    if coupling is not None:
        page = guide_view(guided.source, guided.encode(record.image, record.grid).seen)
        guidance = read_guidance(guided.guide, page, question, coupling, allocation.grid[1:])
    drawn = record.picture["width"], record.picture["height"]
    units = scaled(likely_units(record.image, allocation, record.page), record.image.size, drawn)
    return look_view(record.picture, question, allocation, guidance, units)
