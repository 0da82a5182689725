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
CHANGE = 3  # of the light where the focus is shown, WCAG AA
FINDERS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8").strip()


def assert_accessible(page: Page) -> None:
    """The page can be read by eye and by a screen reader, and used on a narrow screen."""
    assert page.evaluate(f"{FINDERS}.pale({CONTRAST})") == []
    assert page.evaluate(f"{FINDERS}.nameless()") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def assert_usable_by_keys(page: Page, most: int = 80) -> None:
    """Tab alone reaches all that a mouse can use, as it is seen, and leaves it again; each stop is shown."""
    page.evaluate("window.stops = []")
    faint = []
    while page.evaluate("stops.length") <= most:
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        stop = page.evaluate("(stops.push(document.activeElement), stops.at(-1).outerHTML.slice(0, 200))")
        faint += [] if is_focus_seen(page) else [stop]
    assert 0 < page.evaluate("stops.length") <= most, "the focus doesn't leave the page"
    assert faint == []
    assert page.evaluate(f"{FINDERS}.missed(stops)") == []
    assert page.evaluate(f"{FINDERS}.astray(stops)") == []
    assert page.evaluate("[...document.querySelectorAll('[tabindex]')].every((one) => one.tabIndex <= 0)")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement === stops.at(-1)")


def is_focus_seen(page: Page) -> bool:
    """Whether at least half a ring of 2 px around the last stop changes 3 to 1 with the focus."""
    left, top, right, bottom = page.evaluate(
        """(({ left, top, right, bottom }) =>
          [left, top, Math.min(right, innerWidth), Math.min(bottom, innerHeight)]
            .map((side) => Math.max(8, side)))(stops.at(-1).getBoundingClientRect())"""
    )
    size = {"width": right - left, "height": bottom - top}
    around = {"x": left - 8, "y": top - 8} | {name: side + 16 for name, side in size.items()}
    light = []
    for move in ("focus", "blur"):
        page.evaluate(f"stops.at(-1).{move}()")
        shot = Image.open(io.BytesIO(page.screenshot(clip=around, animations="disabled"))).convert("RGB")
        light.append((np.asarray(shot) / 255) ** 2.2 @ [0.2126, 0.7152, 0.0722] + 0.05)
    page.evaluate("stops.at(-1).focus()")
    ratio = np.maximum(*light) / np.minimum(*light)
    return int((ratio >= CHANGE).sum()) >= 2 * sum(size.values())
