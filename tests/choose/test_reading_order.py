"""Reading order: blocks of print, columns first, within a number of cells."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from arr_coc.choose.reading_order import print_blocks
from arr_coc.files.pixels import image_pixels
from arr_coc_lab.world import draw_text_page

GRID = (32, 32)


def page(*boxes: tuple[int, int, int, int]) -> Tensor:
    """A white page of 512 x 512 px with hatched boxes (x0, y0, x1, y1) in place of print."""
    picture = torch.ones(3, 512, 512)
    for x0, y0, x1, y1 in boxes:
        picture[:, y0:y1, x0:x1:4] = 0.0
    return picture


def middles(blocks: list) -> list[tuple[int, int]]:
    return [((b.box[0] + b.box[2]) // 2, (b.box[1] + b.box[3]) // 2) for b in blocks]


def test_columns_are_read_one_after_the_other() -> None:
    lines = [(x, y, x + 180, y + 20) for x in (20, 300) for y in (20, 80, 140)]
    blocks = print_blocks(page(*lines), GRID, most=30)
    places = middles(blocks)
    assert [x > 250 for x, _ in places] == [False] * 3 + [True] * 3
    assert [y for _, y in places] == [y for _, y in places[:3]] * 2


def test_a_block_that_fits_is_not_divided_and_others_are() -> None:
    lines = [(20, y, 480, y + 20) for y in (20, 80, 140, 400)]
    assert len(print_blocks(page(*lines), GRID, most=1024)) == 1
    two = print_blocks(page(*lines), GRID, most=400)
    assert len(two) == 2  # at the widest gap
    assert two[0].box[3] < 200 < two[1].box[1]


def test_one_line_is_a_block_however_many_cells_it_has() -> None:
    (block,) = print_blocks(page((20, 20, 480, 40)), GRID, most=1)
    assert len(block.cells) > 1


def test_cells_cover_the_box_and_rise() -> None:
    for block in print_blocks(page((33, 70, 300, 95), (40, 200, 100, 260)), GRID, most=20):
        x0, y0, x1, y1 = block.box
        mask = torch.zeros(GRID, dtype=torch.bool)
        mask.view(-1)[block.cells] = True
        assert mask.repeat_interleave(16, 0).repeat_interleave(16, 1)[y0:y1, x0:x1].all()
        assert bool((block.cells.diff() > 0).all())


def test_all_of_a_page_without_print() -> None:
    (block,) = print_blocks(torch.ones(3, 512, 512), GRID, most=10)
    assert len(block.cells) == 1024


def test_no_evidence_of_a_list_is_missed_and_labels_keep_their_values() -> None:
    drawn = draw_text_page(1, filler="none")
    blocks = print_blocks(image_pixels(drawn.image)[0], GRID, most=24)
    for question in drawn.questions:
        (x0, y0, *_), (*_, x1, y1) = question.evidence
        inside = [
            b
            for b in blocks
            if b.box[0] <= x0 + 8 and b.box[2] >= x1 - 8 and b.box[1] <= (y0 + y1) / 2 <= b.box[3]
        ]
        assert len(inside) == 1, question


@pytest.mark.parametrize(
    ("picture", "most", "words"),
    [(torch.ones(1, 8, 8), 4, "3, h, w"), (torch.ones(3, 8, 8), 0, "0 cells are no size")],
)
def test_bad_arguments_are_named(picture: Tensor, most: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        print_blocks(picture, (2, 2), most)
