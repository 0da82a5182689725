"""The order of kept cells in a prompt: tokens, positions and levels go together."""

from __future__ import annotations

import pytest
import torch

from arr_coc.seam.assembly import in_order
from eyes import ROWS, inputs_of, prepared_for, wrapped
from tiny import QWEN_FAMILIES


class TestInOrder:
    def test_tokens_that_are_no_cell_keep_their_places(self) -> None:
        indices, cells = torch.tensor([0, 2, 3, 5, 6]), torch.tensor([1, 2, 4, 5, 6])  # 0 and 3 are no cells
        order = torch.tensor([4, 1, 3])  # tokens 6, 2, 5
        assert in_order(indices, cells, order).tolist() == [0, 6, 3, 2, 5]

    def test_other_cells_are_refused(self) -> None:
        with pytest.raises(ValueError, match="not of the 2 kept ones"):
            in_order(torch.tensor([0, 1]), torch.arange(4), torch.tensor([0, 2]))


@torch.no_grad()
@pytest.mark.parametrize("mode", ["prune", "sparse", "saccade"])
@pytest.mark.parametrize("family", QWEN_FAMILIES)
def test_the_most_relevant_come_first_each_at_its_own_position(
    family: str, mode: str, small_constants: None
) -> None:
    model, inputs = wrapped(family), inputs_of(family)
    plain = prepared_for(model, inputs, mode, budget=7)
    sorted_ = prepared_for(model, inputs, mode, budget=7, order="relevance")
    one, other = plain.compacted, sorted_.compacted
    spans = model.adapter.columns(inputs["input_ids"], model.adapter.layout(inputs).counts)
    moved = False
    for image, (row, span) in enumerate(spans):
        allocation = sorted_.allocations[image]
        assert torch.equal(allocation.keep, plain.allocations[image].keep)
        columns = other.columns[row]
        own = columns[torch.isin(columns, span)] - span[0]
        whole = mode == "saccade" and allocation.kept == allocation.total
        if mode != "saccade" or not whole:
            assert torch.equal(own, allocation.order)
        moved |= not torch.equal(own, own.sort().values)
        for batch in (one, other):  # every column has the position of the column that it was
            positions = batch.kwargs["position_ids"][1:, row]
            text = batch.columns[row] >= 0
            expected = model.adapter.positions(inputs)[:, row, batch.columns[row][text]]
            assert torch.equal(positions[:, text], expected.to(positions.dtype))
        first, second = (c.kwargs["mm_encoder_outputs"]["image"].pooler_output[image] for c in (one, other))
        rank = torch.searchsorted(allocation.keep, allocation.order)
        coarse = len(first) - allocation.kept
        if not whole:
            assert torch.equal(second[coarse:], first[coarse:][rank])
            assert torch.equal(second[:coarse], first[:coarse])
    assert moved
    assert torch.equal(one.kwargs["input_ids"], other.kwargs["input_ids"])


@torch.no_grad()
def test_another_order_is_another_prompt_to_causal_attention() -> None:
    """So dropping equals masking in raster order alone."""
    model, inputs = wrapped(), inputs_of(rows=ROWS[:1])
    logits = [
        prepared.model(**prepared.compacted.kwargs).logits[0, -1]
        for prepared in (
            prepared_for(model, inputs, "prune", budget=7, order=o) for o in ("raster", "relevance")
        )
    ]
    assert (logits[0] - logits[1]).abs().max() > 1e-6


@torch.no_grad()
def test_nothing_is_reordered_where_all_is_kept() -> None:
    model, inputs = wrapped(), inputs_of(rows=ROWS[:1])
    whole = [
        prepared_for(model, inputs, "prune", budget=1.0, order=o).compacted for o in ("raster", "relevance")
    ]
    assert torch.equal(whole[0].columns, whole[1].columns)


@torch.no_grad()
def test_a_mode_that_chooses_nothing_says_so() -> None:
    prepared = prepared_for(wrapped(), inputs_of(rows=ROWS[:1]), "full", order="relevance")
    assert prepared.note == "order had no effect in mode full"


@pytest.mark.parametrize(
    ("family", "order", "words"),
    [("qwen3_vl", "best", "'best' is unknown"), ("llava", "relevance", "counts its tokens")],
)
def test_orders_that_cannot_be_had_are_refused(family: str, order: str, words: str) -> None:
    kind = "guide" if family == "llava" else "stem"
    with pytest.raises(ValueError, match=words):
        prepared_for(wrapped(family, kind), inputs_of(family), "prune", order=order)
