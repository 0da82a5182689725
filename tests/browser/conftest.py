"""A real browser for the tests of this folder: the machine's own Chromium, driven by Playwright.

Without one the tests are skipped; with ARR_COC_BROWSER=required (as in CI) they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def _missing(reason: str) -> None:
    if os.environ.get("ARR_COC_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")  # Playwright runs once in a thread, and other tests render pages
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("no browser tests without playwright: pip install 'arr-coc[dev]'")
    found = [path for name in _NAMES if (path := shutil.which(name))]
    if not found:
        _missing(f"no browser tests without one of {', '.join(_NAMES)}: apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found[0], args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """A tab of the browser, for all tests of a module."""
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def blank(tab: Page) -> Iterator[Page]:
    """A page with the viewer's script and style; the test fails if the page has an error of its own."""
    from arr_coc.trace.viewer import assets

    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    tab.goto("about:blank")
    tab.set_viewport_size({"width": 1200, "height": 900})
    tab.emulate_media(color_scheme="light")
    tab.set_content("<!doctype html><body><div id='here'></div></body>")
    script, style = assets()
    tab.add_style_tag(content=style)
    tab.add_script_tag(content=script)
    yield tab
    assert errors == []
