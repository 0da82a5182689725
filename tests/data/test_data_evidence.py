"""Evidence cells: one rule for every size of cell, the one that targets of the drawn world follow."""

from __future__ import annotations

import random

import pytest
import torch

from arr_coc.data.evidence import evidence_cells
from arr_coc.train import rows
from arr_coc_lab.world import draw_page


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


def cells(mask: torch.Tensor) -> list[list[int]]:
    return mask.nonzero().tolist()


def test_there_is_one_rule() -> None:
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


class TestEvidenceCells:
    def test_a_sliver_of_a_cell_does_not_count(self):
        size, grid = (128, 128), (4, 4)
        assert cells(evidence_cells([(0, 0, 32 + 5, 32)], grid, size)) == [[0, 0]]
        assert cells(evidence_cells([(0, 0, 32 + 6, 32)], grid, size)) == [[0, 0], [0, 1]]
        assert cells(evidence_cells([(0, 27, 32, 64)], grid, size)) == [[1, 0]]

    def test_cells_of_any_size(self):
        # 10 x 6 cells of 30 x 50 px: a visible part is 5.625 px wide and 9.375 px high.
        size, grid = (300, 300), (6, 10)
        assert cells(evidence_cells([(25, 0, 65.7, 50)], grid, size)) == [[0, 1], [0, 2]]
        assert cells(evidence_cells([(24, 0, 65.5, 50)], grid, size)) == [[0, 0], [0, 1]]
        assert cells(evidence_cells([(0, 40.7, 30, 59.3)], grid, size)) == [
            [0, 0]
        ]  # most of it, as neither has enough
        assert cells(evidence_cells([(0, 40.0, 30, 60)], grid, size)) == [[0, 0], [1, 0]]

    def test_scaling_image_and_boxes_changes_nothing(self):
        rng = random.Random(0)
        for _ in range(300):
            x, y = rng.randrange(400), rng.randrange(200)
            box = (x, y, x + rng.randrange(1, 112), y + rng.randrange(1, 56))
            small = evidence_cells([box], (10, 20), (640, 320))
            large = evidence_cells([tuple(1.1 * v for v in box)], (10, 20), (704, 352))
            assert torch.equal(small, large)

    def test_no_box_inside_the_image_is_lost(self):
        rng = random.Random(1)
        for _ in range(300):
            x, y = rng.uniform(0, 127), rng.uniform(0, 95)
            box = (x, y, min(128, x + rng.uniform(0.01, 12)), min(96, y + rng.uniform(0.01, 12)))
            assert evidence_cells([box], (3, 4), (128, 96)).any()

    def test_a_small_box_belongs_to_the_cell_that_holds_it(self):
        assert cells(evidence_cells([(33, 40, 35, 42)], (4, 4), (128, 128))) == [[1, 1]]
        assert cells(evidence_cells([(30, 40, 33, 42)], (4, 4), (128, 128))) == [[1, 0]]  # across a border
        assert cells(evidence_cells([(31, 40, 33, 42)], (4, 4), (128, 128))) == [
            [1, 0]
        ]  # a tie: the lower index

    def test_outside_is_cut_off(self):
        assert cells(evidence_cells([(-50, -50, 3, 3)], (4, 4), (128, 128))) == [[0, 0]]
        assert cells(evidence_cells([(100, 100, 900, 900)], (4, 4), (128, 128))) == [[3, 3]]
        assert not evidence_cells([(200, 0, 300, 30)], (4, 4), (128, 128)).any()
        assert not evidence_cells([], (4, 4), (128, 128)).any()
