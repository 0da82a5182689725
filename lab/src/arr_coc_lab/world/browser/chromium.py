"""Chromium by Playwright: renders HTML to a picture with the boxes of its words and marked elements.

    with Chromium() as chromium:
        shot = chromium.render(html, width=800, height=600, scale=1.0)
        shot.png, shot.words, shot.pieces

The system's browser, without network and with the files of one folder at most: every request is checked
(`Gate`), and what is not checked (WebSocket, prefetch, preconnect) meets a proxy that does not exist
(`CLOSED`).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote_to_bytes, urlsplit

from arr_coc_lab.extras import install_line

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--font-render-hinting=none", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--force-color-profile=srgb",
)  # fmt: skip
CLOSED = (
    "--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)  # fmt: skip
"""Options that close the network, this machine's own servers included: neither proxy nor names resolve."""
INLINE = ("data", "blob", "about")
"""Schemes of content inside the page itself."""
SEPARATORS = re.compile(r"%(2f|5c|00)", re.IGNORECASE)
"""Escapes in a path that a browser and a file system may resolve to different files."""

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

    `pieces` maps the number of a piece to its boxes; a piece that is only partly in the picture is missing.
    """

    png: bytes
    words: tuple[Word, ...]
    pieces: Mapping[int, tuple[Box, ...]]


def executable() -> str:
    """Return the path of the system's Chromium; RuntimeError if there is none."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    raise RuntimeError(f"no browser to draw pages with ({', '.join(NAMES)}); install Chromium")


def inside(url: str, folder: Path) -> bool:
    """Return whether a URL is of a file inside a folder, with every link followed."""
    try:
        parts = urlsplit(url)
        if (parts.scheme, parts.netloc) != ("file", "") or SEPARATORS.search(parts.path):
            return False
        path = parts.path[1:] if os.name == "nt" else parts.path  # /C:/folder
        place = Path(os.fsdecode(unquote_to_bytes(path))).resolve()
        return place.is_relative_to(folder.resolve()) and place.is_file()
    except (OSError, ValueError, RuntimeError):  # no name of a file, or links in a circle
        return False


class Gate:
    """Decides what a browser context's pages may load: files of one folder, and inline content.

    `open_for` admits one page, which can't leave for another one (`<meta http-equiv=refresh>`).
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._expected = False

    def open_for(self, folder: Path) -> None:
        """Admit the next page, and the files of its folder."""
        self.folder, self._expected = folder, True

    def __call__(self, route: Any) -> None:
        """Pass a request or abort it; a navigation away from the page is dropped."""
        if self._lets(route.request):
            route.continue_()
        else:
            route.abort("aborted")

    def _lets(self, request: Any) -> bool:
        if request.url.partition(":")[0] in INLINE:
            return True
        if self.folder is None or not inside(request.url, self.folder):
            return False
        if request.is_navigation_request() and request.frame.parent_frame is None:
            expected, self._expected = self._expected, False
            return expected
        return True


class Chromium:
    """A headless browser, open within a `with` block.

    Attributes:
        error: Playwright's exception class.
        windows: those of `documents`, by scale.
        unloadable: pages that don't load, each with the reason.
    """

    error: type[Exception]

    def __enter__(self) -> Self:
        try:
            from playwright.sync_api import Error, sync_playwright
        except ImportError as error:
            raise RuntimeError(f"rendered pages need Playwright: {install_line('world')}") from error
        self.error = Error
        self.unloadable: dict[Path, str] = {}
        self._playwright = sync_playwright().start()
        try:
            self._launch()
        except BaseException:
            self._playwright.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._browser.close()
        self._playwright.stop()

    def _launch(self) -> None:
        self._browser = self._playwright.chromium.launch(executable_path=executable(), args=[*FLAGS, *CLOSED])
        self._pages: dict[float, Any] = {}
        self.windows: dict[float, Any] = {}

    def restart(self) -> None:
        """Start another process, after a page that hung or crashed."""
        self._browser.close()
        self._launch()

    def page(self, scale: float = 1.0) -> Any:
        """Return the Playwright page that draws `scale` px per CSS px; opened once."""
        if scale not in self._pages:
            self._pages[scale] = self.context(Gate(), device_scale_factor=scale).new_page()
        return self._pages[scale]

    def context(self, gate: Gate, **settings: Any) -> Any:
        """Return a Playwright context whose requests pass a gate; `settings` go to `Browser.new_context`."""
        # Requests of service workers pass no route, and a download is written to disk before anybody asks.
        context = self._browser.new_context(service_workers="block", accept_downloads=False, **settings)
        context.route("**/*", gate)
        return context

    def render(self, html: str, width: int, height: int, scale: float = 1.0) -> Shot:
        """Draw an HTML document in a viewport in CSS px, at `scale` px per CSS px."""
        page = self.page(scale)
        page.set_viewport_size({"width": width, "height": height})
        page.set_content(html, wait_until="load")
        return self.shoot(scale)

    def shoot(self, scale: float = 1.0) -> Shot:
        """Return the current picture of the page of a scale, measured."""
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
