"""Scenes: pages that were written by hand, with questions as people put them; see `written`."""

from __future__ import annotations

from arr_coc_lab.world.browser.parts import frame
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type
from arr_coc_lab.world.browser.written import scenes, write


@page_type("scene", weight=8.0)
def scene(sheet: Sheet) -> str:
    """One scene of the page's split."""
    body = write(sheet, sheet.rng.choice([each for each in scenes() if each.split == sheet.words.split]))
    sheet.ask("global", sheet.phrase("global"), "")
    return frame(sheet, body, 0.2)
