"""The pictures to choose from."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from arr_coc.app import handlers
from arr_coc.app.asking import TOKENS
from arr_coc.app.samples import PICTURES, AppSample, chip, picture_samples
from arr_coc.app.state import Tab
from arr_coc.files.question import check_question
from arr_coc.selector import Selector
from arr_coc.trace.evidence import likely_units

MAX_BYTES = 80_000


def names() -> list[str]:
    return [Path(str(sample.image)).name for sample in picture_samples()]


def test_an_order_comes_first_and_each_group_shows_something_else() -> None:
    listed = picture_samples()
    assert names()[0] == "order.png"
    by_group = groupby(listed, lambda one: one.group)
    groups = [(group, [one.question for one in some]) for group, some in by_group]
    assert len(dict(groups)) == len(groups) == 4  # none comes twice
    assert len({one.question for one in listed}) == len(listed)
    assert dict(groups)["Three kinds of question"] == [
        "What is the total?", "Which one is different?", "Give me an overview."
    ]  # fmt: skip


@pytest.mark.slow
def test_the_balance_moves_with_the_kind_of_question() -> None:
    """Coupling, saliency and information lead in turn, and units are outlined of what is meant alone."""
    selector, looked = Selector.from_pretrained(), {}
    for sample in picture_samples():
        image = Image.open(str(sample.image)).convert("RGB")
        kept = selector(image, sample.question, budget=TOKENS)
        looked[sample.question] = int(kept.weights.argmax()), likely_units(image, kept)
    (total, rows), (different, things), (overview, nothing) = (
        looked[text] for text in ("What is the total?", "Which one is different?", "Give me an overview.")
    )
    assert (total, different, overview) == (2, 1, 0)
    assert len(rows) == 1
    x0, y0, x1, y1 = things[0]
    assert x0 < 558 < 618 < x1  # the yellow cross
    assert y0 < 450 < 510 < y1
    assert nothing == looked["What is unusual in this image?"][1] == []


@pytest.mark.parametrize("name", dict.fromkeys(names()))
def test_a_picture_is_small_and_about_as_large_as_a_screen(name: str) -> None:
    path = PICTURES / name
    assert path.stat().st_size <= MAX_BYTES
    with Image.open(path) as image:
        assert 640 <= min(image.size) <= max(image.size) <= 1280
        assert all(side % 32 == 0 for side in image.size)  # whole cells


@pytest.mark.parametrize("sample", picture_samples(), ids=lambda sample: sample.question)
def test_a_question_has_an_answer_with_evidence_in_the_picture(sample: AppSample) -> None:
    check_question(sample.question)
    with Image.open(str(sample.image)) as image:
        width, height = image.size
        pixels = image.convert("L")
    assert sample.evidence or sample.question in ("Give me an overview.", "What is unusual in this image?")
    assert bool(sample.evidence) <= bool(sample.true_answers)
    for x0, y0, x1, y1 in sample.evidence:
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height
        darkest, lightest = pixels.crop((round(x0), round(y0), round(x1), round(y1))).getextrema()
        assert lightest - darkest > 60  # something is printed there


def test_a_chip_sets_the_picture_and_its_question() -> None:
    scenes, tab = picture_samples(), Tab()
    chosen = handlers.on_pick(scenes[3], tab)
    assert chosen[-5:] == [scenes[3].image, scenes[3].question, None, "", ""]
    assert (tab.form_image, tab.truths) == (scenes[3].image, {scenes[3].question: scenes[3].true_answers})
    assert scenes[3].question in chip(scenes[3])
