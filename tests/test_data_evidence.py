"""Evidence cells: one rule for every size of cell, the one that targets of the drawn world follow."""

from __future__ import annotations

import random

import pytest
import torch

from arr_coc.data.evidence import evidence_cells
from arr_coc.evaluate import questions
from arr_coc.training import rows
from arr_coc.world import draw_page


def visible(boxes, height, width, cell=32, least=6):
    """Cells of which some box covers 6 of 32 px or more each way, cell by cell."""
    mask = torch.zeros(height, width, dtype=torch.bool)
    for x0, y0, x1, y1 in boxes:
        for y in range(height):
            for x in range(width):
                inside = (
                    min(y1, (y + 1) * cell) - max(y0, y * cell),
                    min(x1, (x + 1) * cell) - max(x0, x * cell),
                )
                mask[y, x] |= min(inside) >= least
    return mask


def test_there_is_one_rule() -> None:
    assert questions.evidence_cells is evidence_cells
    assert rows.evidence_cells is evidence_cells


@pytest.mark.parametrize("seed", range(3))
def test_on_drawn_pages_it_is_what_can_be_seen(seed: int) -> None:
    page = draw_page(seed, (512, 512), "test")
    boxed = [question.evidence for question in page.questions if question.evidence]
    for boxes in boxed:
        assert evidence_cells(boxes, (16, 16), (512, 512)).equal(visible(boxes, 16, 16))


def test_on_random_boxes_of_some_size_too() -> None:
    rng = random.Random(0)
    for _ in range(200):
        x, y = rng.randrange(0, 250), rng.randrange(0, 250)
        box = (x, y, x + rng.randint(12, 90), y + rng.randint(12, 90))
        assert evidence_cells((box,), (8, 8), (256, 256)).equal(visible((box,), 8, 8))


def test_no_box_is_too_small_to_count() -> None:
    rng = random.Random(0)
    for _ in range(200):
        x, y = rng.randrange(0, 255), rng.randrange(0, 255)
        box = (x, y, min(256, x + rng.randint(1, 11)), min(256, y + rng.randint(1, 11)))
        mask = evidence_cells((box,), (8, 8), (256, 256))
        assert mask.any()
        assert not (visible((box,), 8, 8) & ~mask).any()
        inside = visible((box,), 8, 8, least=1)
        assert not (mask & ~inside).any()


def test_cells_of_any_size() -> None:
    # 20 px cells: a box covers columns 0, 1 and 3 px of column 2, which is too little.
    mask = evidence_cells(((0.0, 0.0, 43.0, 20.0),), (3, 4), (80, 60))
    assert mask.nonzero().tolist() == [[0, 0], [0, 1]]
    assert evidence_cells(((41.0, 21.0, 43.0, 23.0),), (3, 4), (80, 60)).nonzero().tolist() == [[1, 2]]
    assert evidence_cells(((19.0, 0.0, 22.0, 9.0),), (3, 4), (80, 60)).nonzero().tolist() == [[0, 1]]
    assert not evidence_cells(((90.0, 0.0, 99.0, 9.0),), (3, 4), (80, 60)).any()
