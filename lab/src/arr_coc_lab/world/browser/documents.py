"""Pages of real documentation at a random scroll position, with questions by rule from their DOM.

    with Chromium() as chromium:
        page = render_document(chromium, seed=7, split="test")
        page.source                "sqlite3-doc/lang_select.html"

`packages` lists the sources, `document.js` measures the viewport, `facts` asks. Pages vary in viewport and
scale, and half of them get another font family, size, width or palette.
"""

from __future__ import annotations

import base64
import html
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from arr_coc_lab.world.browser.chromium import Chromium, Gate
from arr_coc_lab.world.browser.facts import STRUCTURE, Facts, inquire
from arr_coc_lab.world.browser.fonts import families
from arr_coc_lab.world.browser.packages import PACKAGES, ROOTS, Package, pages
from arr_coc_lab.world.browser.page import RenderedPage
from arr_coc_lab.world.browser.style import LEAST, MOST, SHAPES, palette
from arr_coc_lab.world.page import page_seed

MEASURE = files("arr_coc_lab.world.browser").joinpath("document.js").read_text()
STYLE = """css => {
  const style = document.createElement("style");
  style.textContent = css;
  document.documentElement.append(style);
}"""
SCROLL = """([share, target, offset, tabular]) => {
  const rows = tabular ? document.querySelectorAll("table:has(th) tr") : [];
  const marks = rows.length ? rows : document.querySelectorAll("h1,h2,h3,h4,dt,tr,.memitem");
  const room = document.documentElement.scrollHeight - innerHeight;
  if (target === null || !marks.length) return scrollTo(0, share * room);
  const top = marks[Math.floor(target * marks.length)].getBoundingClientRect().top + scrollY;
  scrollTo(0, top - offset * innerHeight);
}"""
"""Scrolls to a share of the document, or so that some heading, term or row is that far down the viewport."""
SETTLED = (
    "noscript{display:none!important}html{scroll-behavior:auto!important}"
    "*{content-visibility:visible!important}"
    "*,*::before,*::after{transition:none!important;animation-duration:0s!important;animation-delay:0s!important;"
    "animation-iteration-count:1!important;animation-fill-mode:both!important}"
)
"""Style for every page: far sections are laid out and animations have ended, so that time changes nothing."""
TRIES, SCROLLS = 60, 4
"""Pages tried for a seed, and places in each."""
PATIENCE = 20.0
"""Seconds that a page may take to load."""
MIN_WORDS, MIN_ANSWERED = 25, 4
"""A view needs this many words and questions with evidence."""
MANY = 40
"""Pages from which on a package is drawn as often as any other; smaller ones are drawn less often."""
UNSTRUCTURED = 0.1
"""Chance that a view is taken where only words can be asked for."""


Picture = Callable[[], bytes]
"""Renders a window's view as PNG."""


class DocumentLook(NamedTuple):
    """How a document is drawn: the viewport in CSS px, px per CSS px, and an added style sheet."""

    width: int
    height: int
    scale: float
    css: str


class Window(NamedTuple):
    """A Playwright page without scripts, and its DevTools session."""

    page: Any
    session: Any
    gate: Gate

    def open(self, path: Path, look: DocumentLook, folder: Path) -> None:
        """Show a file in a look; it loads files of `folder` alone."""
        size = {"width": look.width, "height": look.height}
        self.page.set_viewport_size(size)
        metrics = {**size, "deviceScaleFactor": look.scale, "mobile": False}
        self.session.send("Emulation.setDeviceMetricsOverride", metrics)  # a session draws in its own metrics
        self.gate.open_for(folder)
        self.page.goto(path.resolve().as_uri(), wait_until="load", timeout=1000 * PATIENCE)
        self.page.evaluate(STYLE, SETTLED + look.css)

    def scroll(self, rng: random.Random, look: DocumentLook, interface: bool = False) -> Facts:
        """Scroll to a random place and measure it."""
        self.page.evaluate(SCROLL, _place(rng))
        return Facts.of(self.page.evaluate(MEASURE, interface), look.scale)

    def png(self) -> bytes:
        """Return the picture, by DevTools: in half the time of Playwright's own screenshot."""
        shot = self.session.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
        return base64.b64decode(shot["data"])


def render_document(
    chromium: Chromium,
    seed: int,
    split: str = "train",
    roots: tuple[Path, ...] = ROOTS,
    packages: tuple[Package, ...] = PACKAGES,
) -> RenderedPage:
    """Render a part of a page of documentation.

    Args:
        chromium: an open browser.
        seed: 0 or more.
        split: "train", "validation" or "test"; no two share a package.
        roots: folders to look in.
        packages: to choose from.

    Raises:
        ValueError: an unknown split or a negative seed.
        RuntimeError: packages are not installed, or none has a page with enough to ask.
    """
    rng = random.Random(f"document {page_seed(seed, split)}")
    shelf = pages(split, roots, packages)
    for _ in range(TRIES):
        name, path, other = draw_path(rng, shelf, MANY)
        look = draw_look(rng, split)
        root = next(root for root in roots if path.is_relative_to(root))
        source = f"{name}/{path.name}"

        def take(
            facts: Facts, picture: Picture, other: Path = other, source: str = source
        ) -> RenderedPage | None:
            if len(facts.words) < MIN_WORDS:
                return None
            questions = inquire(rng, facts, headings(other))
            structured = (
                any(question.kind in STRUCTURE for question in questions) or rng.random() < UNSTRUCTURED
            )
            if not structured or sum(bool(question.evidence) for question in questions) < MIN_ANSWERED:
                return None
            return RenderedPage(picture(), questions, facts.words, "document", None, seed, split, source)

        page = visit(chromium, rng, path, look, root, SCROLLS, take)
        if page is not None:
            return page
    raise RuntimeError(f"no page with enough text in {TRIES} tries among {', '.join(shelf)}")


def draw_path(rng: random.Random, shelf: Mapping[str, Sequence[Path]], many: int) -> tuple[str, Path, Path]:
    """Draw a package, a page of it to show, and another page whose headings are asked for as absent ones.

    `many` is the number of pages from which on a package is drawn as often as any other.
    """
    name = rng.choices(list(shelf), [min(len(paths), many) ** 0.5 for paths in shelf.values()])[0]
    return name, rng.choice(shelf[name]), rng.choice(shelf[name])


def _place(rng: random.Random) -> list[float | bool | None]:
    """Arguments of SCROLL: one in six at the top, one in three anywhere, half at a heading, term or row."""
    share = rng.choice((0.0, rng.random(), rng.random()))
    return [share, rng.choice((None, rng.random())), rng.uniform(0.02, 0.7), rng.random() < 0.5]


def visit(
    chromium: Chromium,
    rng: random.Random,
    path: Path,
    look: DocumentLook,
    folder: Path,
    count: int,
    take: Callable[[Facts, Picture], RenderedPage | None],
    interface: bool = False,
) -> RenderedPage | None:
    """Return the first of `count` random places of a file that `take` accepts; None where none is.

    A file that doesn't load in `PATIENCE`, or that the browser fails at, is noted in `chromium.unloadable`
    and not opened again. `interface` also measures labels, switches and other controls.
    """
    if path in chromium.unloadable:
        return None
    try:
        window = window_of(chromium, look.scale)
        window.open(path, look, folder)
        for _ in range(count):
            page = take(window.scroll(rng, look, interface), window.png)
            if page is not None:
                return page
    except chromium.error as error:
        chromium.unloadable[path] = str(error).splitlines()[0]
        chromium.restart()  # one that hangs or has died shows no other page either
    return None


def window_of(chromium: Chromium, scale: float) -> Window:
    """Return the browser's window without scripts for a scale; opened once."""
    if scale not in chromium.windows:
        gate = Gate()
        context = chromium.context(gate, device_scale_factor=scale, java_script_enabled=False)
        page = context.new_page()
        chromium.windows[scale] = Window(page, context.new_cdp_session(page), gate)
    return chromium.windows[scale]


def draw_look(rng: random.Random, split: str) -> DocumentLook:
    """Draw a viewport, a scale and a style sheet, which in half of the cases changes nothing visible."""
    width, height = rng.choice(SHAPES)
    if rng.random() < 0.3:
        width, height = rng.randint(340, 1500), rng.randint(300, 1400)
    scales = [
        scale
        for scale in (0.75, 0.875, 1.0, 1.0, 1.125, 1.25, 1.5, 1.75, 2.0)
        if LEAST <= min(width, height) * scale
        and max(width, height) * scale <= MOST
        and width * height * scale**2 <= 2_000_000
    ]
    rules = []
    if rng.random() < 0.5:
        rules = [rule for rule in _changes(rng, split) if rng.random() < 0.5]
    return DocumentLook(width, height, rng.choice(scales or [1.0]), "".join(rules))


def _changes(rng: random.Random, split: str) -> list[str]:
    """Style rules that each change one property: family, size, width, leading, palette."""
    family, dark, hue = rng.choice(families(split)), rng.random() < 0.6, rng.random()
    if split != "test":  # the same sixth of the circle of hues as in `style`
        hue = (0.30 + hue * 5 / 6) % 1.0
    colour = palette(rng, dark, hue)
    text = "body,p,li,td,th,dd,dt,a,div,h1,h2,h3,h4,h5,h6"
    boxes = "pre,th,code,blockquote,table"
    return [
        f"{text}{{font-family:'{family}',sans-serif!important}}",
        f"html{{font-size:{rng.randint(85, 135)}%!important}}"
        f"p,dd,td{{font-size:{rng.uniform(0.9, 1.3):.2f}em}}",
        f"body{{max-width:{rng.randint(38, 75)}em!important;margin:0 auto!important;padding:0 1em}}",
        f"p,li,dd{{line-height:{rng.uniform(1.2, 1.9):.2f}!important}}",
        f"*{{background:transparent!important;color:{colour['ink']}!important}}"
        f"*{{border-color:{colour['line']}!important}}"
        f"html{{background:{colour['paper']}!important}}a,a *{{color:{colour['accent']}!important}}"
        f"{boxes}{{background:{colour['card']}!important}}",
    ]


@lru_cache(maxsize=512)
def headings(path: Path) -> tuple[str, ...]:
    """Return the headings and terms of a file, for questions about what is not on another page."""
    source = path.read_text(errors="replace")
    raw = re.findall(r"<(?:h[2-5]|dt)\b[^>]*>(.*?)</(?:h[2-5]|dt)>", source, re.S | re.I)
    plain = (html.unescape(re.sub(r"<[^>]*>", "", part)) for part in raw[:200])
    texts = (" ".join(text.split()).strip(" ¶#:") for text in plain)
    return tuple(sorted({text for text in texts if 4 <= len(text) <= 50}))
