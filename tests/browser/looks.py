"""What the viewer's browser tests share: calling the viewer, and pictures of how it looked before.

Renew the pictures in snapshots/ after a wanted change with ARR_COC_SNAPSHOTS=renew, then look at them.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

SNAPSHOTS = Path(__file__).parent / "snapshots"
TOLERANCE = 1.5  # mean absolute difference of a channel, of 255


def call(page: Page, what: str, *values: Any) -> None:
    """`ArrCocViewer.<what>` with `element` as the place and `v` the values; waits for the first paint."""
    page.evaluate(
        "([what, v]) => { window.handle?.destroy(); const element = document.getElementById('here');"
        " window.handle = new Function('element', 'v', `return ArrCocViewer.${what}`)(element, v);"
        " return window.handle.ready; }",
        [what, values],
    )


def assert_looks(part: Locator, name: str) -> None:
    """A part of a page looks as in its picture."""
    shot = Image.open(io.BytesIO(part.screenshot())).convert("RGB")
    file = SNAPSHOTS / f"{name}.png"
    if os.environ.get("ARR_COC_SNAPSHOTS") == "renew":
        shot.save(file, optimize=True)
    before = Image.open(file)
    # A part begins and ends at a fraction of a pixel; where it is cut depends on fonts and on the browser.
    assert all(abs(now - then) <= 1 for now, then in zip(shot.size, before.size, strict=True))
    width, height = map(min, shot.size, before.size)
    now, then = (np.asarray(picture, dtype=np.float32)[:height, :width] for picture in (shot, before))
    shifts = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    gaps = [np.abs(np.roll(then, shift, (0, 1)) - now)[1:-1, 1:-1].mean() for shift in shifts]
    assert min(gaps) < TOLERANCE
