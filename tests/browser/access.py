"""A page that everybody can use: text stands out, each control has a name, nothing scrolls sideways."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Page

CONTRAST = 4.5  # of text to its ground, WCAG AA
FINDERS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8").strip()


def assert_accessible(page: Page) -> None:
    """The page can be read by eye and by a screen reader, and used on a narrow screen."""
    assert page.evaluate(f"{FINDERS}.pale({CONTRAST})") == []
    assert page.evaluate(f"{FINDERS}.nameless()") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def assert_usable_by_keys(page: Page, most: int = 80) -> None:
    """Tab alone goes through everything that a mouse can use, as it is seen, and out again, and shows where it is."""
    page.evaluate("window.stops = []")
    faint = []
    while page.evaluate("stops.length") <= most:
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        stop = page.evaluate(
            "stops.push(document.activeElement), document.activeElement.outerHTML.slice(0, 200)"
        )
        faint += [] if is_focus_seen(page) else [stop]
    assert 0 < page.evaluate("stops.length") <= most, "the focus doesn't leave the page"
    assert faint == []
    assert page.evaluate(f"{FINDERS}.missed(stops)") == []
    assert page.evaluate(f"{FINDERS}.astray(stops)") == []
    assert page.evaluate("[...document.querySelectorAll('[tabindex]')].every((one) => one.tabIndex <= 0)")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement === stops.at(-1)")


def is_focus_seen(page: Page) -> bool:
    """Whether half a ring of 2 px around what has the focus changes at least 3 to 1 when it goes (WCAG 1.4.11)."""
    x, y, right, bottom = page.evaluate(
        "(box => [box.x - 8, box.y - 8, Math.min(box.right + 8, innerWidth), Math.min(box.bottom + 8, innerHeight)]"
        ".map((side) => Math.max(0, side)))(document.activeElement.getBoundingClientRect())"
    )
    light = []
    for move in ("window.stop = document.activeElement", "stop.blur()"):
        page.evaluate(move)
        part = {"x": x, "y": y, "width": right - x, "height": bottom - y}
        shot = np.asarray(
            Image.open(io.BytesIO(page.screenshot(clip=part, animations="disabled"))).convert("RGB")
        )
        light.append(((shot / 255) ** 2.2 @ [0.2126, 0.7152, 0.0722]) + 0.05)
    page.evaluate("stop.focus()")
    ratio = np.maximum(*light) / np.minimum(*light)
    return int((ratio >= 3).sum()) >= 2 * (right - x + bottom - y - 32)
