"""Hits: the best box of a choice against the labelled ones, and the null that paints what was not kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.model import ARRCOCModel
from arr_coc.relevance.deciding import best_kept
from arr_coc_lab.evaluate.hits import iou, is_hit, labelled_boxes
from arr_coc_lab.evaluate.painted import crop_black, painted_black
from arr_coc_lab.evaluate.questions import world_questions
from arr_coc_lab.evaluate.scene import Scene

GRID = (1, 8, 10)


def cells(*boxes: tuple[int, int, int, int]) -> Tensor:
    """Bool [8, 10], True in boxes of cells."""
    mask = torch.zeros(GRID[1:], dtype=torch.bool)
    for x0, y0, x1, y1 in boxes:
        mask[y0:y1, x0:x1] = True
    return mask


def choice(best: tuple[int, int, int, int], *others: tuple[int, int, int, int]) -> Tensor:
    """Scores: 1 in the best box, a little less in others."""
    return cells(best) + 0.9 * cells(*others) * ~cells(best)


@pytest.mark.parametrize(
    ("best", "labelled", "hit"),
    [
        ((2, 2, 5, 3), [(2, 2, 5, 3)], True),
        ((2, 2, 5, 3), [(2, 2, 5, 4)], True),  # 3 of 6 cells: half is enough
        ((2, 2, 5, 3), [(2, 2, 6, 4)], False),  # 3 of 8
        ((2, 2, 5, 3), [(3, 2, 6, 3)], True),  # 2 of 4
        ((2, 2, 5, 3), [(4, 2, 7, 3)], False),  # 1 of 5
        ((2, 2, 5, 3), [(7, 6, 9, 7), (2, 2, 5, 3)], True),  # any of the labelled boxes
        ((2, 2, 6, 3), [(2, 2, 4, 3), (4, 2, 6, 3)], True),  # those that touch are one
        ((0, 0, 1, 1), [(2, 2, 5, 3)], False),
    ],
)
def test_a_hit_is_an_overlap_of_half(
    best: tuple[int, int, int, int], labelled: list[tuple[int, int, int, int]], hit: bool
) -> None:
    allocation = best_kept(GRID, choice(best), 40)
    assert is_hit(allocation, cells(*labelled)) == hit


def test_only_the_best_box_counts() -> None:
    allocation = best_kept(GRID, choice((0, 0, 2, 1), (2, 4, 5, 5)), 20)
    assert len(allocation.evidence((10, 8))) == 2
    assert is_hit(allocation, cells((0, 0, 2, 1)))
    assert not is_hit(allocation, cells((2, 4, 5, 5)))


def test_no_box_is_no_hit() -> None:
    allocation = best_kept(GRID, torch.ones(GRID), 40)
    assert allocation.evidence((10, 8)) == ()
    assert not is_hit(allocation, cells((0, 0, 10, 4)))


def test_overlap_by_counting_cells() -> None:
    boxes = [(0, 0, 3, 2), (1, 1, 4, 4), (5, 5, 9, 8), (0, 0, 10, 8)]
    for a in boxes:
        for b in boxes:
            one, other = cells(a), cells(b)
            assert iou(a, b) == pytest.approx(float((one & other).sum() / (one | other).sum()))
    assert sorted(labelled_boxes(cells((0, 0, 3, 2), (5, 5, 9, 8)))) == [(0, 0, 3, 2), (5, 5, 9, 8)]


def test_only_the_cells_stay_visible() -> None:
    picture = torch.rand(3, 64, 80) + 0.1
    mask = cells((2, 2, 5, 3), (9, 7, 10, 8))
    painted = painted_black(picture, mask)
    visible = mask.repeat_interleave(8, 0).repeat_interleave(8, 1)
    assert torch.equal(painted, picture * visible)
    assert torch.equal(painted_black(picture, torch.ones_like(mask)), picture)
    assert not painted_black(picture, torch.zeros_like(mask)).any()


def test_crop_black_reads_all_tokens_of_the_painted_picture() -> None:
    """With every cell kept its prompt is the stock model's; with fewer the others are as if black."""
    model = ARRCOCModel.from_pretrained(strict=True)
    source = next(iter(world_questions(2, 192, 2)))
    view = Scene(model, source).view
    with torch.no_grad():
        ready = [
            crop_black(view, 0, count, view.encoded("crop-black"), Stopwatch(model.device))
            for count in (view.total, 9)
        ]
        logits = [model.base(**one.compacted.kwargs).logits for one in ready]
        stock = model.base(**view.prompts[0]).logits
    assert torch.equal(logits[0], stock)
    assert logits[1].shape == stock.shape
    assert not torch.allclose(logits[1], stock)
    assert ready[1].keep is not None
    assert torch.equal(ready[1].keep, view.chosen(None, 0, 9).keep)
