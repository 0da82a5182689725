"""Familiarity: the bundled stem tells drawn pages from other pictures, and keeps that in its file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import cbook
from PIL import Image, ImageDraw, ImageFont

from arr_coc.choose.stem import Familiarity, Stem, load_stem, save_stem, statistics
from arr_coc.files.saved import BUNDLED
from arr_coc.selector import StemScorer
from arr_coc_lab.world import draw_page


@pytest.fixture(scope="module")
def scorer() -> StemScorer:
    return StemScorer.load(BUNDLED / "allocator")


def score(scorer: StemScorer, picture: Image.Image) -> float:
    with torch.no_grad():
        pixels, grid = scorer.pixels(picture)
        assert scorer.stem.familiarity is not None
        return float(scorer.stem.familiarity(scorer.stem(pixels, grid)[0]))


@pytest.mark.slow
def test_held_out_pages_are_familiar_but_one_in_fifty(scorer: StemScorer) -> None:
    sizes = ((256, 256), (512, 384), (768, 768), (1024, 1024))
    scores = {
        (size, seed): score(scorer, draw_page(seed, size, "test").image)
        for size in sizes
        for seed in range(700, 706)
    }
    assert sum(value > 0 for value in scores.values()) <= 1, scores


def test_a_page_that_went_through_jpeg_is_familiar(scorer: StemScorer) -> None:
    stream = io.BytesIO()
    draw_page(711, (640, 640), "test").image.save(stream, "JPEG", quality=75)
    assert score(scorer, Image.open(stream)) < 0


def circle(side: int) -> Image.Image:
    image = Image.new("RGB", (side, side), "white")
    ImageDraw.Draw(image).ellipse((0.3 * side, 0.3 * side, 0.7 * side, 0.7 * side), "red")
    return image


def invoice() -> Image.Image:
    image = Image.new("RGB", (900, 1100), "white")
    pen = ImageDraw.Draw(image)
    lines = [
        "INVOICE 4711",
        "Acme Ltd, 12 Long Road, Leeds",
        "",
        "Paper  $12.50",
        "Ink  $31.00",
        "Total  $43.50",
    ]
    for row, line in enumerate(lines):
        pen.text((60, 60 + 60 * row), line, "black", ImageFont.load_default(28))
    return image


def photograph() -> Image.Image:
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        return Image.open(file).convert("RGB")


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (512, 512, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    "picture",
    [
        circle(256),
        circle(512),
        circle(1024),
        invoice(),
        photograph(),
        noise(),
        Image.new("RGB", (512, 512), "white"),
    ],
    ids=["small circle", "circle", "large circle", "invoice", "photograph", "noise", "white"],
)
def test_other_pictures_are_foreign(scorer: StemScorer, picture: Image.Image) -> None:
    assert score(scorer, picture) > 0


def test_the_order_of_cells_is_of_no_account() -> None:
    tokens = torch.randn(50, 8)
    unit = Familiarity(8)
    unit.weight = torch.randn(16)
    assert torch.allclose(unit(tokens), unit(tokens[torch.randperm(50)]), atol=1e-5)


def test_the_score_is_linear_in_cut_off_statistics() -> None:
    tokens = torch.tensor([[1.0, 2.0], [3.0, 2.0]])
    assert statistics(tokens).tolist() == [2.0, 2.0, 1.0, 0.0]
    unit = Familiarity(2)
    unit.mean, unit.scale = torch.tensor([1.0, 2.0, 1.0, 0.0]), torch.tensor([0.5, 1.0, 1.0, 1.0])
    unit.weight, unit.bias = torch.tensor([3.0, 1.0, 1.0, 1.0]), torch.tensor(-4.0)
    assert float(unit(tokens)) == pytest.approx(2.0)  # (2 - 1) / 0.5 * 3 - 4
    assert float(unit(1e6 * tokens)) == pytest.approx(3 * 8 + 8 + 8 - 4)


def test_one_cell_has_a_score() -> None:
    assert torch.isfinite(Familiarity(4)(torch.randn(1, 4)))


def test_it_is_kept_in_the_stem_s_file(tmp_path: Path) -> None:
    stem = Stem(32, width=16, blocks=1)
    save_stem(stem, tmp_path)
    plain = load_stem(tmp_path, 32)
    assert plain is not None
    assert plain.familiarity is None
    stem.familiarity = Familiarity(32)
    stem.familiarity.weight = torch.randn(64)
    save_stem(stem, tmp_path)
    loaded = load_stem(tmp_path, 32)
    assert loaded is not None
    assert loaded.familiarity is not None
    assert torch.equal(loaded.familiarity.weight, stem.familiarity.weight)  # unrounded
