"""Chromium, by Playwright: HTML in, a picture and the boxes of its words and pieces out.

    with Chromium() as chromium:
        shot = chromium.render(html, width=800, height=600, scale=1.0)
        shot.png, shot.words, shot.pieces

The browser is the system's. Nothing is loaded from outside: requests to any host are refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--font-render-hinting=none", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--force-color-profile=srgb",
)  # fmt: skip

MEASURE = Path(__file__).with_name("measure.js").read_text(encoding="utf-8")
"""A JavaScript function that measures every visible word and piece."""

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in px of the picture."""


class Word(NamedTuple):
    """A printed word: its text, its box and font size in px of the picture, and where its characters end.

    `edges` are the x of the left edge of the word and of the right edge of each of its UTF-16 units.
    """

    text: str
    box: Box
    size: float
    edges: tuple[float, ...] = ()


class Shot(NamedTuple):
    """A rendered page.

    `pieces` maps the number of a piece to its boxes; a piece that is not wholly in the picture is missing.
    """

    png: bytes
    words: tuple[Word, ...]
    pieces: Mapping[int, tuple[Box, ...]]


def executable() -> str:
    """The path of the system's Chromium.

    Raises:
        RuntimeError: there is none.
    """
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    raise RuntimeError(f"no browser to draw pages with ({', '.join(NAMES)}); install Chromium")


class Chromium:
    """A headless browser, open within a `with` block."""

    def __enter__(self) -> Self:
        try:
            from playwright.sync_api import sync_playwright
        except ImportError as error:
            raise RuntimeError("rendered pages need Playwright: pip install 'arr-coc[world]'") from error
        self._playwright = sync_playwright().start()
        try:
            self._browser = self._playwright.chromium.launch(executable_path=executable(), args=list(FLAGS))
        except BaseException:
            self._playwright.stop()
            raise
        self._pages: dict[float, Any] = {}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.close()
        self._playwright.stop()

    def page(self, scale: float = 1.0) -> Any:
        """The Playwright page that draws `scale` px per CSS px; opened once."""
        if scale not in self._pages:
            context = self._browser.new_context(device_scale_factor=scale)
            context.route("http*://**", lambda route: route.abort())
            self._pages[scale] = context.new_page()
        return self._pages[scale]

    def render(self, html: str, width: int, height: int, scale: float = 1.0) -> Shot:
        """Draw HTML.

        Args:
            html: a whole document.
            width: of the viewport in CSS px.
            height: of the viewport in CSS px.
            scale: px per CSS px.
        """
        page = self.page(scale)
        page.set_viewport_size({"width": width, "height": height})
        page.set_content(html, wait_until="load")
        return self.shoot(scale)

    def shoot(self, scale: float = 1.0) -> Shot:
        """What the page of a scale shows now, measured."""
        page = self.page(scale)
        measured = page.evaluate(MEASURE)
        png = page.screenshot(type="png")

        def box(corners: list[float]) -> Box:
            x0, y0, x1, y1 = (round(corner * scale, 1) for corner in corners)
            return max(0.0, x0), max(0.0, y0), x1, y1

        words = tuple(
            Word(text, box(corners), size * scale, tuple(round(x * scale, 1) for x in edges))
            for text, *corners, size, edges in measured["words"]
        )
        pieces = {int(n): tuple(map(box, boxes)) for n, (whole, boxes) in measured["pieces"].items() if whole}
        return Shot(png, words, pieces)
