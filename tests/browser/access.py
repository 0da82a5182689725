"""A page that everybody can use: text stands out, each control has a name, nothing scrolls sideways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

CONTRAST = 4.5  # of text to its ground, WCAG AA
FINDERS = Path(__file__).with_suffix(".js").read_text(encoding="utf-8").strip()


def assert_accessible(page: Page) -> None:
    """The page can be read by eye and by a screen reader, and used on a narrow screen."""
    assert page.evaluate(f"{FINDERS}.pale({CONTRAST})") == []
    assert page.evaluate(f"{FINDERS}.nameless()") == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
