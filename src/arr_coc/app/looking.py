"""Which cells the guide would keep, with no model loaded, while a question is still being typed.

What the guide computes of a picture is kept in its tab, in the memory for encoded images; a question costs
the guide's head alone.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image

from arr_coc.app.state import EncodedMemory, SeenPicture, Tab
from arr_coc.files.images import ImageSource, open_image
from arr_coc.guide.coupling import fitted
from arr_coc.guide.selector import Selector
from arr_coc.trace.evidence import read_guidance
from arr_coc.trace.view import look_view, picture_view

LONGEST_QUESTION = 2000
"""Characters of a question that are read while it is being typed."""
SHOWN = 1024
"""The longest side in px at which the picture is sent to the page."""


class Looking:
    """The live view's work; one picture or question at a time.

    Args:
        encoded: the memory that the pictures of all tabs share.
        guide: folder of another guide; None: the bundled one.
    """

    def __init__(self, encoded: EncodedMemory, guide: Path | None = None) -> None:
        self.encoded, self.guide = encoded, guide
        self._lock = Lock()
        self._first: dict[str, Any] | None = None

    def view(self, tab: Tab, image: ImageSource, question: str, budget: float | str) -> dict[str, Any]:
        """What the viewer draws of a question about a tab's picture; `budget` as of `Session.ask`.

        Raises:
            ValueError: the picture can't be read, or there is no question, or no guide.
        """
        with self._lock:
            if tab.record is None or not same(tab.record.source, image):
                tab.record = None  # before the next takes its place in memory
                tab.record = see(image, self.guide)
            self.encoded.use(tab)
            return view(tab.record, question, budget)

    def first(self, image: ImageSource, question: str, budget: float | str) -> dict[str, Any]:
        """The same for what every tab shows first, computed once for all of them."""
        with self._lock:
            if self._first is None:
                self._first = view(see(image, self.guide), question, budget)
            return self._first

    def end(self, patience: float = 0.0) -> bool:
        """Begin no more looks; whether one still runs after so many seconds."""
        # A thread inside torch when the process ends would take it down with an abort.
        return not self._lock.acquire(timeout=patience)


def same(one: ImageSource, other: ImageSource) -> bool:
    """Whether two sources are one picture: one object, or one path."""
    return one is other or (isinstance(one, str) and one == other)


def see(source: ImageSource, guide: Path | None = None) -> SeenPicture:
    """Open a picture and compute what a guide needs of it."""
    image = open_image(source).convert("RGB")
    selector = Selector.from_pretrained(guide)
    grid = selector.sizing.grid(image.height, image.width)  # the command line's, whatever the guide reads
    size = fitted(*image.size)
    if size != image.size:  # the guide would scale it down, too, and a tab keeps it
        image = image.resize(size, Image.Resampling.BILINEAR)
    small = image.copy()
    small.thumbnail((SHOWN, SHOWN))
    selector.encode(image, grid)
    return SeenPicture(source, image, grid, selector, picture_view(small))


def view(record: SeenPicture, question: str, budget: float | str) -> dict[str, Any]:
    """What the viewer draws of a question about a picture."""
    question = question[:LONGEST_QUESTION].strip()
    decision = record.selector.decide(record.image, question, budget, record.grid)
    allocation, coupling = decision.allocations[0], decision.couplings[0]
    page = record.selector.encode(record.image, record.grid).page
    guidance = read_guidance(record.selector.guide, page, question, coupling, allocation.grid[1:])
    return look_view(record.picture, question, allocation, guidance)
