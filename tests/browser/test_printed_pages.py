"""Rows and heads of tables that a browser lays out, against the cells of the document."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from arr_coc.pixels.page import PrintedPage, find_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
SIZE = (1280, 860)
PAGES = sorted((Path(__file__).parents[2] / "runs" / "strangers").glob("*.html"))
CELLS = """() => [...document.querySelectorAll('table')].map(table => [...table.rows].map(row =>
    [...row.cells].map(cell => {
        const range = document.createRange(); range.selectNodeContents(cell);
        const box = range.getBoundingClientRect();
        return {text: cell.innerText.trim(), head: cell.tagName == 'TH', span: cell.colSpan * cell.rowSpan,
                box: [box.left, box.top, box.right, box.bottom]};
    })))"""


def line_of(page: PrintedPage, box: list[float]) -> int | None:
    """The first line of print in a box of the document; -1 without one, None out of the picture."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    if not (0 < x < SIZE[0] and 0 < y < SIZE[1]):
        return None
    x0, y0, x1, y1 = page.boxes.T
    found = np.flatnonzero((x0 <= box[2]) & (x1 >= box[0]) & (y0 <= y + 2) & (y1 >= y - 2))
    return int(found[0]) if len(found) else -1


def counted(page: PrintedPage, table: list[list[dict[str, Any]]]) -> np.ndarray:
    """Rows whose cells are one row, rows, cells under their head, cells."""
    counts = np.zeros(4, dtype=int)
    if any(cell["span"] > 1 for row in table for cell in row):
        return counts
    row_of = {i: number for number, row in enumerate(page.rows) for i in row}
    heads: list[int | None] = []
    for row in table:
        lines = [line_of(page, cell["box"]) if cell["text"] else None for cell in row]
        there = [i for i in lines if i is not None]
        if len(there) > 1:
            counts[:2] += -1 not in there and len({row_of[i] for i in there}) == 1, 1
        if row and all(cell["head"] for cell in row):
            heads = heads or lines
        elif len(heads) == len(row):
            for i, head in zip(lines, heads, strict=True):
                if i not in (None, -1) and head not in (None, -1):
                    counts[2:] += page.headers[i] == head, 1
    return counts


def test_tables_of_pages_that_nobody_drew_for_it(tab: Page) -> None:
    tab.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
    counts = np.zeros(4, dtype=int)
    for path in PAGES:
        tab.goto(path.as_uri())
        tables = tab.evaluate(CELLS)
        if tables:
            page = find_page(Image.open(io.BytesIO(tab.screenshot())).convert("RGB"))
            counts += sum(counted(page, table) for table in tables)
    assert counts[1] > 100
    assert counts[0] >= 0.9 * counts[1], counts
    assert counts[2] >= 0.85 * counts[3], counts
