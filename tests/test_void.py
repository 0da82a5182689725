"""Images with nothing to prefer, with the bundled model: an even grid, and the allocation says so."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from arr_coc import ARRCOCModel, Reason
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.texture import generate_texture_array
from arr_coc.guide.coupling import PRINTED_WORDS
from arr_coc.selector import Selector
from arr_coc.session import Session
from strokes import splattered

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


@pytest.mark.slow
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


@pytest.mark.slow
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


def scattered_words() -> Image.Image:
    """Words all over the picture, in no rows: to the texture alone they are as strokes are."""
    draw_from = np.random.default_rng(3)
    words = "quality growth market price engine river garden model budget window paper forest winter silver"
    image, taken = Image.new("RGB", (SIZE, 768), "white"), []
    draw = ImageDraw.Draw(image)
    for word in draw_from.choice(words.split(), 300):
        spot = (int(draw_from.integers(0, SIZE - 120)), int(draw_from.integers(0, 730)))
        font = ImageFont.load_default(int(draw_from.choice([16, 20, 28, 40])))
        x0, y0, x1, y1 = box = draw.textbbox(spot, word, font=font)
        if len(taken) < 60 and all(x1 < a or c < x0 or y1 < b or d < y0 for a, b, c, d in taken):
            draw.text(spot, word, fill="black", font=font)
            taken.append(box)
    return image


@pytest.mark.slow
@pytest.mark.parametrize("question", ["Where is the winter?", "What does it mean?", "Where is the bicycle?"])
def test_scattered_words_are_something_where_they_are_read(question: str) -> None:
    image = scattered_words()
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None] / 255
    texture = generate_texture_array(pixels, (24, 32))
    assert not ARRCOCLayer(ARRCOCConfig(dim=8)).structured(texture), "or this tests nothing"
    assert not Selector.from_pretrained()(image, question, budget=BUDGET).void


@pytest.mark.slow
@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize(
    "question", [*QUESTIONS, "What does this painting represent?", "Which pencil is red? Where is the line?"]
)
def test_the_guide_reads_nothing_where_nothing_is(kind: str, question: str) -> None:
    assert Selector.from_pretrained()(IMAGES[kind](), question, budget=BUDGET).void


@pytest.mark.slow
@pytest.mark.parametrize("strokes", [60, 150, 400, 1500])
def test_strokes_hold_no_words(strokes: int) -> None:
    selector = Selector.from_pretrained()
    for seed in range(3):
        page = selector.encode(splattered((SIZE, SIZE), strokes, seed)).view
        assert page.vocabulary < 0.8 * PRINTED_WORDS
    assert selector.encode(scattered_words()).view.vocabulary > 1.5 * PRINTED_WORDS


@pytest.mark.slow
def test_a_strip_narrower_than_its_padding_has_nothing_printed_beside_it() -> None:
    strip = noise().crop((0, 0, 20, SIZE)).resize((20, 6 * SIZE), Image.Resampling.NEAREST)
    cues = Selector.from_pretrained().cues(strip, QUESTIONS[0], grid=(192, 1))
    assert cues.guided is not None
    assert not cues.guided.printed
