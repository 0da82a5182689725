"""Where it would look: by the guide alone, with no model loaded, while a question is still being typed.

    looking = Looking(encoded)
    looking.view(tab, "page.png", "What is the total?", 0.06)    what the viewer's `look` draws

What the guide sees of a picture is computed once and kept in its tab, in the memory for encoded images; a
question costs the guide's head alone.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from PIL import Image

from arr_coc.app.tab import Sight
from arr_coc.files.images import open_image

if TYPE_CHECKING:
    from pathlib import Path

    from arr_coc.app.tab import Encoded, Tab
    from arr_coc.files.images import ImageSource

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

    def __init__(self, encoded: Encoded, guide: Path | None = None) -> None:
        self.encoded, self.guide = encoded, guide
        self._lock = Lock()
        self._first: dict[str, Any] | None = None

    def view(self, tab: Tab, image: ImageSource, question: str, budget: float | str) -> dict[str, Any]:
        """Where it would look for a question in a tab.

        Args:
            tab: keeps what the guide sees of the picture.
            image: a picture, another than before or the same.
            question: any text with a word in it.
            budget: as of `Session.ask`.

        Raises:
            ValueError: the picture can't be read, or there is no question, or no guide.
        """
        with self._lock:
            if tab.sight is None or not same(tab.sight.source, image):
                tab.sight = None  # before the next takes its place in memory
                tab.sight = see(image, self.guide)
            self.encoded.use(tab)
            return view(tab.sight, question, budget)

    def first(self, image: ImageSource, question: str, budget: float | str) -> dict[str, Any]:
        """The same for what every tab shows first, computed once for all of them."""
        with self._lock:
            if self._first is None:
                self._first = view(see(image, self.guide), question, budget)
            return self._first

    def end(self, patience: float = 0.0) -> bool:
        """Begin no more looks; whether one still runs after so many seconds.

        A thread of the server that is inside torch when the process ends would take it down with an abort.
        """
        return not self._lock.acquire(timeout=patience)


def same(one: ImageSource, other: ImageSource) -> bool:
    """Whether two sources are one picture: one object, or one path."""
    return one is other or (isinstance(one, str) and one == other)


def see(source: ImageSource, guide: Path | None = None) -> Sight:
    """Open a picture, and look at it by a guide."""
    from arr_coc.guide.coupling import fitted
    from arr_coc.guide.selector import Selector
    from arr_coc.trace.view import picture_view

    image = open_image(source).convert("RGB")
    selector = Selector.from_pretrained(guide)
    grid = selector.sizing.grid(image.height, image.width)  # the command line's, whatever the guide reads
    size = fitted(*image.size)
    if size != image.size:  # the guide would scale it down, too, and a tab keeps it
        image = image.resize(size, Image.Resampling.BILINEAR)
    small = image.copy()
    small.thumbnail((SHOWN, SHOWN))
    selector.encode(image, grid)
    return Sight(source, image, grid, selector, picture_view(small))


def view(sight: Sight, question: str, budget: float | str) -> dict[str, Any]:
    """What the viewer draws of a question about a picture."""
    from arr_coc.trace.evidence import read_guidance
    from arr_coc.trace.view import look_view

    question = question[:LONGEST_QUESTION].strip()
    decision = sight.selector.decide(sight.image, question, budget, sight.grid)
    allocation, coupling = decision.allocations[0], decision.couplings[0]
    page = sight.selector.encode(sight.image, sight.grid).page
    guidance = read_guidance(sight.selector.guide, page, question, coupling, allocation.grid[1:])
    return look_view(sight.picture, question, allocation, guidance)
