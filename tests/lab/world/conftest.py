"""A browser for the tests of what it renders.

Without one they are skipped; with ARR_COC_BROWSER=required (as in CI) they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from arr_coc_lab.world.browser import Chromium


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """A browser that is open."""
    try:
        browser = Chromium().__enter__()
    except RuntimeError as error:
        if os.environ.get("ARR_COC_BROWSER") == "required":
            raise
        pytest.skip(str(error))
    yield browser
    browser.__exit__(None, None, None)
