"""The committed pictures are of the pages that `runs/pictures.py` draws, and show the product as it is.

No browser: machines differ in their fonts, so pixels are not compared.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from arr_coc.app import build_app
from arr_coc.app.samples import LISTED, PICTURES
from arr_coc.selector import Selector

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "runs" / "pictures.py"))
read_page, PAGES, ORDER = (SCRIPT[name] for name in ("read_page", "PAGES", "ORDER"))
FIRST: str = SCRIPT["FIRST"][0]


def test_every_page_has_its_picture() -> None:
    listed = json.loads((PICTURES / LISTED).read_text(encoding="utf-8"))
    assert [page["name"] for page in listed] == list(ORDER)
    assert {path.stem for path in PICTURES.glob("*.png")} == {*ORDER, "shapes"}
    assert {path.stem for path in PAGES.iterdir()} == {*ORDER}
    for page in listed:
        _, size, questions = read_page(page["name"])
        assert Image.open(PICTURES / f"{page['name']}.png").size == size
        for one, written in zip(page["questions"], questions, strict=True):
            assert (one["question"], one["answer"]) == (written["question"], written["answer"])
            assert len(one["evidence"]) == len(written["pieces"])


COMMAND = "the pictures of docs/ show another product: run python runs/pictures.py, and look at them"
SHOWN = json.loads(SCRIPT["SHOWN"].read_text(encoding="utf-8"))


def test_the_record_is_of_the_pictures_that_are_there() -> None:
    assert SCRIPT["digests"]() == SHOWN["sha256"], COMMAND


@pytest.mark.slow
def test_the_pictures_show_what_the_guide_keeps_today() -> None:
    selector = Selector.from_pretrained()
    today = [SCRIPT["first_choice"](selector)]
    today += [SCRIPT["choice"](selector, sample) for sample in SCRIPT["samples"]()]
    for one, shown in zip(today, [SHOWN["first"], *SHOWN["look"]], strict=True):
        assert (one.question, one.allocation.kept) == (shown["question"], shown["budget"]), COMMAND
        changed = set(one.allocation.keep.tolist()) ^ set(shown["kept"])
        assert len(changed) <= 2, COMMAND  # kernels round, and the last cell kept may be another


@pytest.mark.slow
def test_the_picture_of_the_app_shows_its_tabs_and_samples() -> None:
    app = build_app()
    try:
        assert SCRIPT["of_app"](app) == SHOWN["app"], COMMAND
    finally:
        app.close(verbose=False)


@pytest.mark.parametrize("name", ORDER)
def test_the_answer_is_printed_on_the_page(name: str) -> None:
    html, _, questions = read_page(name)
    for question in questions:
        for number in question["pieces"]:
            assert html.count(f'data-piece="{number}"') == 1
    assert len(questions) >= 2
