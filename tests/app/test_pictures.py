"""The pictures to choose from."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from arr_coc.app import handlers
from arr_coc.app.samples import PICTURES, AppSample, chip, picture_samples
from arr_coc.app.state import Tab
from arr_coc.files.question import check_question

MAX_BYTES = 80_000


def names() -> list[str]:
    return [Path(str(sample.image)).stem for sample in picture_samples()]


def test_an_order_comes_first_and_each_has_questions() -> None:
    counts = {name: len(list(group)) for name, group in groupby(names())}
    assert list(counts) == ["order", "invoice", "chart", "settings", "ticket"]  # none comes twice
    assert all(count >= 2 for count in counts.values())


@pytest.mark.parametrize("name", dict.fromkeys(names()))
def test_a_picture_is_small_and_about_as_large_as_a_screen(name: str) -> None:
    path = PICTURES / f"{name}.png"
    assert path.stat().st_size <= MAX_BYTES
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert 700 <= min(image.size) <= max(image.size) <= 1280
        assert all(side % 32 == 0 for side in image.size)  # whole cells


@pytest.mark.parametrize("sample", picture_samples(), ids=lambda sample: sample.question)
def test_a_question_has_an_answer_with_evidence_in_the_picture(sample: AppSample) -> None:
    check_question(sample.question)
    assert sample.true_answers
    with Image.open(str(sample.image)) as image:
        width, height = image.size
        pixels = image.convert("L")
    assert sample.evidence
    for x0, y0, x1, y1 in sample.evidence:
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height
        darkest, lightest = pixels.crop((round(x0), round(y0), round(x1), round(y1))).getextrema()
        assert lightest - darkest > 60  # something is printed there


def test_a_chip_sets_the_picture_and_its_question() -> None:
    scenes, tab = picture_samples(), Tab()
    chosen = handlers.on_pick(scenes, tab, 3)
    assert chosen[-5:] == [scenes[3].image, scenes[3].question, None, "", ""]
    assert (tab.form_image, tab.truths) == (scenes[3].image, {scenes[3].question: scenes[3].true_answers})
    assert scenes[3].question in chip(scenes[3])
