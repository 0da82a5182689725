"""Evidence in clips: cells of every frame, and recall that asks for one readable moment of each item."""

from __future__ import annotations

import pytest
import torch

from arr_coc.data.evidence import evidence_cells
from arr_coc_lab.data.clip_evidence import clip_recall, evidence_grid, item_shares, step_count
from arr_coc_lab.data.tracks import Evidence

SIZE = (128, 128)
BOX, OTHER = (0, 0, 32, 32), (64, 64, 128, 96)


def test_a_still_item_has_the_cells_of_its_box_in_its_steps() -> None:
    cells = evidence_grid((Evidence(3, 6, (BOX,)),), (5, 4, 4), SIZE)
    one = evidence_cells((BOX,), (4, 4), SIZE)
    assert torch.equal(cells, torch.stack([one & False, one, one, one, one & False]))
    assert step_count(9) == 5
    assert step_count(9, 1) == 9


def test_frames_of_a_step_are_merged() -> None:
    moving = Evidence(0, 3, tuple((32 * i, 0, 32 * i + 32, 32) for i in range(4)))
    cells = evidence_grid((moving,), (2, 4, 4), SIZE)
    assert cells[0].nonzero().tolist() == [[0, 0], [0, 1]]
    assert cells[1].nonzero().tolist() == [[0, 2], [0, 3]]
    single = evidence_grid((moving,), (4, 4, 4), SIZE, frames_per_step=1)
    assert single.nonzero().tolist() == [[i, 0, i] for i in range(4)]


def test_one_moment_of_each_item_is_enough() -> None:
    items = (Evidence(0, 19, (BOX,)), Evidence(10, 19, (OTHER,)))
    kept = torch.zeros(10, 4, 4, dtype=torch.bool)
    assert clip_recall(kept, items, SIZE) == 0
    kept[7] = evidence_cells((BOX,), (4, 4), SIZE)
    assert item_shares(kept, items, SIZE) == [1, 0]
    kept[9, 2, 2] = True  # half of the other's two cells
    assert item_shares(kept, items, SIZE) == [1, 0.5]
    kept[0] = evidence_cells((OTHER,), (4, 4), SIZE)  # before it is there: shows nothing of it
    assert clip_recall(kept, items, SIZE) == 0.75
    assert clip_recall(torch.ones_like(kept), items, SIZE) == 1


def test_all_frames_of_some_items() -> None:
    path = Evidence(0, 3, (BOX, BOX, BOX, BOX), every=True)
    kept = torch.zeros(2, 4, 4, dtype=torch.bool)
    kept[1, 0, 0] = True
    assert clip_recall(kept, (path,), SIZE) == 0.5
    assert clip_recall(kept, (Evidence(0, 3, (BOX,)),), SIZE) == 1


def test_sampled_frames() -> None:
    item, numbers = Evidence(10, 13, tuple((i, 0, i + 32, 32) for i in range(4))), (0, 6, 11, 12, 20, 30)
    sampled = item.sampled(numbers)
    assert sampled == Evidence(2, 3, ((1, 0, 33, 32), (2, 0, 34, 32)))
    grid = (3, 4, 4)
    assert torch.equal(
        evidence_grid((item,), grid, SIZE, numbers=numbers), evidence_grid((sampled,), grid, SIZE)
    )
    assert Evidence(10, 10, (BOX,)).sampled(numbers) is None
    everything = torch.ones(3, 4, 4, dtype=torch.bool)
    assert clip_recall(everything, (Evidence(10, 10, (BOX,)),), SIZE, numbers=numbers) == 0
    half = Evidence(10, 13, (BOX,), every=True)
    assert clip_recall(everything, (half,), SIZE, numbers=numbers) == 0.5


def test_parts() -> None:
    item = Evidence(2, 4, ((0, 0, 1, 1), (1, 0, 2, 1), (2, 0, 3, 1)))
    assert item.part(3, 9) == Evidence(3, 4, ((1, 0, 2, 1), (2, 0, 3, 1)))
    assert item.part(5, 9) is None
    assert item.box(3) == (1, 0, 2, 1)
    assert (len(item), list(item.frames)) == (3, [2, 3, 4])


def test_refusals() -> None:
    for first, last, boxes in ((3, 2, (BOX,)), (-1, 2, (BOX,)), (0, 2, (BOX, BOX))):
        with pytest.raises(ValueError, match="evidence of"):
            Evidence(first, last, boxes)
    with pytest.raises(ValueError, match="outside"):
        Evidence(0, 2, (BOX,)).box(3)
    kept = torch.zeros(2, 4, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match="no evidence"):
        clip_recall(kept, (), SIZE)
    with pytest.raises(ValueError, match="step 2, but the grid has 2"):
        clip_recall(kept, (Evidence(0, 4, (BOX,)),), SIZE)
    with pytest.raises(ValueError, match="bool mask"):
        clip_recall(kept.float(), (Evidence(0, 1, (BOX,)),), SIZE)
    with pytest.raises(ValueError, match="frames_per_step 0"):
        evidence_grid((Evidence(0, 1, (BOX,)),), (2, 4, 4), SIZE, 0)


def test_a_drawn_clip_from_end_to_end() -> None:
    from arr_coc_lab.world.clips import draw_clip

    clip = draw_clip(3, (448, 448), stories=("appear", "caption"))
    everything = torch.ones(step_count(len(clip.frames)), 14, 14, dtype=torch.bool)
    for question in clip.questions:
        cells = evidence_grid(question.evidence, (16, 14, 14), clip.size)
        assert 0 < cells.float().mean() < 0.7
        assert clip_recall(everything, question.evidence, clip.size) == 1
        assert clip_recall(cells, question.evidence, clip.size) == 1
        assert clip_recall(~everything, question.evidence, clip.size) == 0
