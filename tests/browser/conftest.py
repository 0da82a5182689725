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
    from playwright.sync_api import Browser

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
