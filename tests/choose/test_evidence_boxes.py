"""Evidence: the kept cells that matter, grouped into boxes on the picture."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from PIL import Image

from arr_coc.answer import Answer
from arr_coc.choose.allocation import MAX_EVIDENCE, Allocation, EvidenceBox, Reason, evidence_text
from arr_coc.relevance.deciding import best_kept, everything_kept

GRID = (1, 8, 10)
SIZE = (100, 80)  # cells of 10 px


def record(cells: dict[tuple[int, int], float], kept: int = 20, ground: float = 0.01) -> Allocation:
    """The best cells of a map with a relevance at some cells (y, x) and an even ground."""
    scores = torch.full(GRID, ground)
    for (y, x), value in cells.items():
        scores[0, y, x] = value
    return replace(best_kept(GRID, scores, kept), balanced=scores)


def test_cells_that_touch_are_one_box_and_the_best_comes_first() -> None:
    found = record({(1, 1): 0.7, (1, 2): 0.6, (2, 3): 0.65, (6, 8): 0.9}).evidence(SIZE)
    assert [(one.box, one.cells) for one in found] == [((80, 60, 90, 70), 1), ((10, 10, 40, 30), 3)]
    assert [one.score for one in found] == pytest.approx([0.9, 0.7])


def test_cells_apart_are_boxes_of_their_own() -> None:
    assert [one.cells for one in record({(1, 1): 0.9, (1, 3): 0.8, (3, 1): 0.7}).evidence(SIZE)] == [1, 1, 1]


def test_what_is_far_below_the_best_is_no_evidence() -> None:
    assert len(record({(1, 1): 0.9, (5, 5): 0.4}).evidence(SIZE)) == 1
    assert len(record({(1, 1): 0.9, (5, 5): 0.5}).evidence(SIZE)) == 2


@pytest.mark.parametrize("ground", [0.01, 0.5, 0.7])
def test_an_even_ground_is_no_evidence_however_high(ground: float) -> None:
    """Saliency may be 0.5 all over a picture, of which half of the highest would then be everything."""
    (one,) = record({(1, 1): 0.95}, ground=ground).evidence(SIZE)
    assert one == EvidenceBox((10, 10, 20, 20), pytest.approx(0.95), 1)


def test_dropped_cells_and_cells_for_coverage_are_no_evidence() -> None:
    allocation = record({(1, 1): 0.9, (5, 5): 0.8, (6, 0): 0.7}, kept=2)
    assert len(allocation.evidence(SIZE)) == 2
    second = allocation.keep == 5 * 10 + 5
    reasons = torch.where(second, int(Reason.EXPLORED), allocation.reasons)
    assert [one.box for one in replace(allocation, reasons=reasons).evidence(SIZE)] == [(10, 10, 20, 20)]


def test_nothing_stands_out() -> None:
    even = record({})
    void = replace(record({(1, 1): 0.9}), void=True, reasons=torch.full((20,), int(Reason.VOID)))
    for allocation in (even, void, everything_kept(GRID)):
        assert allocation.evidence(SIZE) == ()


def test_at_most_so_many_and_these_are_the_best() -> None:
    cells = {(y, x): 0.99 - 0.01 * (4 * y + x) for y in range(0, 8, 2) for x in range(0, 10, 2)}
    found = record(cells).evidence(SIZE)
    scores = [one.score for one in found]
    assert len(found) == MAX_EVIDENCE
    assert scores == pytest.approx(sorted(cells.values(), reverse=True)[:MAX_EVIDENCE])


@pytest.mark.parametrize("size", [(100, 80), (1333, 77), (10, 8), (7, 5)])
def test_boxes_are_those_of_their_cells_at_any_size(size: tuple[int, int]) -> None:
    draws = torch.Generator().manual_seed(0)
    allocation = best_kept(GRID, torch.rand(GRID, generator=draws), 30)
    relevance = allocation.relevance_of_kept()
    middle = (relevance.max() + allocation.balanced.median()) / 2
    boxes = allocation.boxes(size)[relevance >= middle]
    found = allocation.evidence(size)
    assert sum(one.cells for one in found) == len(boxes), "each cell is in one group"
    for one in found:
        x0, y0, x1, y1 = one.box
        assert 0 <= x0 <= x1 <= size[0]
        assert 0 <= y0 <= y1 <= size[1]
        assert 0 <= one.score <= 1
    for x0, y0, x1, y1 in boxes.tolist():
        assert any(b[0] <= x0 and b[1] <= y0 and x1 <= b[2] and y1 <= b[3] for b, *_ in found)


def test_a_bad_size() -> None:
    with pytest.raises(ValueError, match=r"size \(0, 5\) is not the width and height"):
        record({(1, 1): 0.9}).evidence((0, 5))


def test_in_a_clip_neighbouring_steps_are_one_group() -> None:
    scores = torch.full((3, 4, 4), 0.01)
    scores[0, 1, 1], scores[1, 1, 2], scores[2, 2, 3] = 0.7, 0.9, 0.8
    far = scores.clone()
    far[2, 2, 3], far[2, 3, 0] = 0.01, 0.8
    allocation = replace(best_kept((3, 4, 4), scores, 10), balanced=scores)
    (one,) = allocation.evidence((40, 40))
    assert (one.box, one.cells, one.step) == ((10, 10, 40, 30), 3, 1)
    allocation = replace(best_kept((3, 4, 4), far, 10), balanced=far)
    assert [one.step for one in allocation.evidence((40, 40))] == [1, 2]


def test_in_words() -> None:
    assert evidence_text(()) == "none"
    one = EvidenceBox((120, 40, 260, 60), 0.974, 4)
    assert evidence_text([one]) == "1 box: 120,40-260,60 px (0.97)"
    assert evidence_text([one] * 5) == f"5 boxes, best first: {', '.join([one.text] * 3)}, ..."
    assert one._replace(step=3).text == "120,40-260,60 px (0.97) in step 3"


def test_an_answer_has_those_of_each_of_its_images() -> None:
    one, other = record({(1, 1): 0.9}), record({(6, 8): 0.9, (2, 2): 0.8})
    images = (Image.new("RGB", SIZE), Image.new("RGB", (200, 160)))
    answer = Answer(
        "4711", one, {}, False, "sparse", 20, 40, 160, 40, allocations=(one, other), images=images
    )
    assert answer.evidence == (one.evidence(SIZE), other.evidence((200, 160)))
    assert [len(boxes) for boxes in answer.evidence] == [1, 2]
    assert replace(answer, images=()).evidence == ()
