"""Images with nothing to prefer, end to end with the bundled model: an even grid, and the allocation says so.

Run: pytest tests/test_void.py
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from arr_coc import ARRCOCModel, Reason
from arr_coc.session import Session

SIZE = 1024
"""Pixels: 32 x 32 cells, enough for mode "saccade" to choose."""
BUDGET = 64
QUESTIONS = ("What is the invoice number?", "How many red shapes are there?")


def blank() -> Image.Image:
    return Image.new("RGB", (SIZE, SIZE), "white")


def noise() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def splatter() -> Image.Image:
    """Short strokes of any colour and direction, everywhere."""
    draw_from = np.random.default_rng(1)
    image = Image.new("RGB", (SIZE, SIZE), "white")
    draw = ImageDraw.Draw(image)
    for _ in range(SIZE * SIZE // 600):
        x, y = draw_from.integers(0, SIZE, 2)
        angle, length = draw_from.uniform(0, 2 * np.pi), draw_from.uniform(15, 60)
        end = (x + length * np.cos(angle), y + length * np.sin(angle))
        colour = tuple(int(value) for value in draw_from.integers(0, 256, 3))
        draw.line([(x, y), end], fill=colour, width=int(draw_from.integers(2, 7)))
    return image


IMAGES = {"blank page": blank, "noise": noise, "splatter": splatter}


@cache
def session(kind: str) -> Session:
    return _model().session(IMAGES[kind]())


@cache
def _model() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(strict=True)


@pytest.fixture(scope="module", autouse=True)
def forget() -> object:
    yield
    session.cache_clear()
    _model.cache_clear()


@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
@pytest.mark.parametrize(
    ("kind", "question"),
    [(kind, question) for kind in IMAGES for question in QUESTIONS],
)
def test_an_even_grid_is_kept(kind: str, question: str, mode: str) -> None:
    answer = session(kind).ask(question, mode=mode, budget=BUDGET, max_new_tokens=1)
    allocation = answer.allocation
    assert (answer.mode, answer.kept, answer.fallback) == (mode, BUDGET, False)
    assert allocation.void
    assert (allocation.reasons == Reason.VOID).all()
    blocks = allocation.mask()[0].unflatten(1, (4, 8)).unflatten(0, (4, 8)).sum((1, 3))
    assert blocks.min() >= 3, "of the 16 parts of the image, each has its share of 4"
    assert blocks.max() <= 5


@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
def test_one_word_on_a_blank_page_is_something(mode: str) -> None:
    """The rule is of the image, and does not fire wherever there is little."""
    image = blank()
    ImageDraw.Draw(image).text((704, 256), "INVOICE 4711", fill="black", font_size=40)
    allocation = _model().look(image, QUESTIONS[0], mode=mode, budget=BUDGET)
    assert not allocation.void
    beside = torch.zeros(32, 32, dtype=torch.bool)
    beside[8:10, 22:32] = True
    assert (allocation.mask()[0] & beside).sum() >= 8
