"""The committed pictures are of the pages that `runs/pictures.py` draws, and show the product as it is.

No browser: machines differ in their fonts, so pixels are not compared.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from arr_coc.app import build_app
from arr_coc.app.samples import LISTED, PICTURES
from arr_coc.selector import Selector
from records import record

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "runs" / "pictures.py"))
read_page, PAGES, WRITTEN, GROUPS = (SCRIPT[name] for name in ("read_page", "PAGES", "WRITTEN", "GROUPS"))


def test_every_sample_has_its_picture() -> None:
    listed = json.loads((PICTURES / LISTED).read_text(encoding="utf-8"))
    asked = [(one["group"], Path(one["file"]).stem, one["question"]) for one in listed]
    assert asked == [(group, *one) for group, some in GROUPS.items() for one in some]
    assert {path.name for path in PICTURES.iterdir()} == {LISTED, *(one["file"] for one in listed)}
    assert {path.stem for path in PAGES.iterdir()} == {*WRITTEN}
    known = {one["question"]: one for one in listed}
    for name in WRITTEN:
        _, size, questions = read_page(name)
        assert Image.open(PICTURES / f"{name}.png").size == size
        for written in questions:
            one = known[written["question"]]
            assert (one["answer"], len(one["evidence"])) == (written["answer"], len(written["pieces"]))


COMMAND = "the pictures of docs/ show another product: run python runs/pictures.py, and look at them"
CLICK_COMMAND = "docs/try.json is of another product: run python runs/pictures.py --try"
CLICKED = json.loads(SCRIPT["TRY"].read_text(encoding="utf-8"))
SHOWN = json.loads(SCRIPT["SHOWN"].read_text(encoding="utf-8"))


def test_the_record_is_of_the_pictures_that_are_there() -> None:
    assert SCRIPT["digests"]() == SHOWN["sha256"], COMMAND


@pytest.mark.slow
def test_the_pictures_show_what_the_guide_keeps_today() -> None:
    selector = Selector.from_pretrained(relevance="guide")
    today = [SCRIPT["first_choice"](selector)]
    today += [SCRIPT["choice"](selector, sample) for sample in SCRIPT["samples"]()]
    for one, shown in zip(today, [SHOWN["first"], *SHOWN["look"]], strict=True):
        assert (one.question, one.allocation.kept) == (shown["question"], shown["budget"]), COMMAND
        changed = set(one.allocation.keep.tolist()) ^ set(shown["kept"])
        assert len(changed) <= 2, COMMAND  # kernels round, and the last cell kept may be another


def test_the_page_to_click_through_has_its_questions() -> None:
    for page, (name, (alt, answers)) in zip(CLICKED, SCRIPT["CLICKED"].items(), strict=True):
        assert (page["name"], page["alt"]) == (name, alt), CLICK_COMMAND
        assert {one["question"]: one["answer"] for one in page["questions"]} == answers, CLICK_COMMAND
        assert tuple(page["size"]) == Image.open(SCRIPT["DOCS"] / "pictures" / f"{name}.png").size


@pytest.mark.slow
def test_the_page_to_click_through_shows_what_the_guide_keeps_today() -> None:
    for today, shown in zip(
        SCRIPT["clicked"](Selector.from_pretrained(relevance="guide")), CLICKED, strict=True
    ):
        assert today["grid"] == shown["grid"]
        for one, other in zip(today["questions"], shown["questions"], strict=True):
            assert len(set(one["kept"]) ^ set(other["kept"])) <= 2, CLICK_COMMAND  # kernels round
            assert one["sure"] == pytest.approx(other["sure"], abs=0.02), CLICK_COMMAND


@pytest.mark.slow
def test_the_picture_of_the_app_shows_its_tabs_and_samples() -> None:
    app = build_app()
    try:
        assert SCRIPT["of_app"](app) == SHOWN["app"], COMMAND
    finally:
        app.close(verbose=False)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_answer_is_printed_on_the_page(name: str) -> None:
    html, _, questions = read_page(name)
    for question in questions:
        for number in question["pieces"]:
            assert html.count(f'data-piece="{number}"') == 1
    assert questions


# ---- choices beside each other


def test_kept_cells_alone_stay_in_colour_and_evidence_is_outlined() -> None:
    red = (220, 40, 40)

    def choice(kept: int, *boxes: tuple[float, ...]) -> Any:
        return SCRIPT["Choice"](
            Image.new("RGB", (256, 256), red), record(4, 4, kept), "$x_" * 300 + "语", boxes
        )

    def drawn(one: Any) -> np.ndarray:
        return np.asarray(SCRIPT["draw_gallery"]([one], 1, 4.0)).astype(int)

    few, many = (int((abs(drawn(choice(kept)) - red).max(-1) < 3).sum()) for kept in (4, 8))
    assert few > 0
    assert many == pytest.approx(2 * few, rel=0.1)
    assert (drawn(choice(4)) != drawn(choice(4, (10.0, 10.0, 60.0, 60.0)))).any()
    with pytest.raises(ValueError, match="at least one"):
        SCRIPT["draw_gallery"]([])
    with pytest.raises(ValueError, match="evidence box"):
        SCRIPT["draw_gallery"]([choice(4, (5.0, 5.0, 5.0, 9.0))])
