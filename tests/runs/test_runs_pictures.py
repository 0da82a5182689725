"""The committed pictures are of the pages that `runs/pictures.py` draws.

No browser: machines differ in their fonts, so pixels are not compared.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from arr_coc.app.samples import LISTED, PICTURES

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "runs" / "pictures.py"))
read_page, PAGES, ORDER = (SCRIPT[name] for name in ("read_page", "PAGES", "ORDER"))
FIRST: str = SCRIPT["FIRST"][0]


def test_every_page_has_its_picture() -> None:
    listed = json.loads((PICTURES / LISTED).read_text(encoding="utf-8"))
    assert [page["name"] for page in listed] == list(ORDER)
    assert {path.stem for path in PICTURES.glob("*.png")} == {*ORDER, "shapes"}
    assert {path.stem for path in PAGES.iterdir()} == {*ORDER, FIRST}
    for page in listed:
        _, size, questions = read_page(page["name"])
        assert Image.open(PICTURES / f"{page['name']}.png").size == size
        for one, written in zip(page["questions"], questions, strict=True):
            assert (one["question"], one["answer"]) == (written["question"], written["answer"])
            assert len(one["evidence"]) == len(written["pieces"])


def test_the_first_picture_is_of_its_page() -> None:
    _, (width, height), _ = read_page(FIRST)
    docs = Path(__file__).parents[2] / "docs"
    assert Image.open(docs / f"{FIRST}.png").size == (width, height)
    drawn = Image.open(docs / "first.png")
    assert drawn.width > width
    assert drawn.height > height


@pytest.mark.parametrize("name", [*ORDER, FIRST])
def test_the_answer_is_printed_on_the_page(name: str) -> None:
    html, _, questions = read_page(name)
    for question in questions:
        for number in question["pieces"]:
            assert html.count(f'data-piece="{number}"') == 1
    assert len(questions) >= 2
