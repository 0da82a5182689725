"""Choices beside each other."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from records import record

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "runs" / "pictures.py"))
Choice, draw_gallery = SCRIPT["Choice"], SCRIPT["draw_gallery"]
RED = (220, 40, 40)


def choice(size: tuple[int, int], kept: int = 4, question: str = "What is it?") -> Any:
    return Choice(Image.new("RGB", size, RED), record(4, 4, kept), question)


def colours(picture: Image.Image) -> int:
    """Pixels of the pictures' own colour: those of kept cells."""
    pixels = np.asarray(picture).astype(int)
    return int((abs(pixels - RED).max(-1) < 3).sum())


def test_kept_cells_alone_stay_in_colour() -> None:
    few, many = (colours(draw_gallery([choice((256, 256), kept)], 1, 4.0)) for kept in (4, 8))
    assert few > 0
    assert many == pytest.approx(2 * few, rel=0.1)


def test_rows_are_as_wide_as_each_other() -> None:
    shapes = [(256, 256), (192, 256), (256, 192), (64, 256), (300, 100)]
    one = draw_gallery([choice(shape) for shape in shapes[:2]], 2, 6.0)
    all_of_them = draw_gallery([choice(shape) for shape in shapes], 2, 6.0)
    assert one.width == all_of_them.width == 900
    assert all_of_them.height > 2 * one.height
    assert all_of_them.mode == "RGB"


def test_any_question_fits_and_evidence_is_outlined() -> None:
    plain = choice((256, 256), question="$x_" * 300 + "语")
    outlined = Choice(plain.image, plain.allocation, plain.question, ((10.0, 10.0, 60.0, 60.0),))
    before, after = (np.asarray(draw_gallery([one], 1, 4.0)) for one in (plain, outlined))
    assert before.shape == after.shape
    assert (before != after).any()


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        draw_gallery([])
    plain = choice((64, 64))
    with pytest.raises(ValueError, match="evidence box"):
        draw_gallery([Choice(plain.image, plain.allocation, plain.question, ((5.0, 5.0, 5.0, 9.0),))])
