"""Modes "sparse" and "saccade" where the encoder makes tokens that are no cell: newlines, begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from arr_coc.model import ARRCOCModel
from arr_coc.modes.call import Prepared
from arr_coc.seam import GESTALT, VisualFeatures
from eyes import COARSE, IMAGES, assert_same, build, inputs_of, prepared_for, same
from near import near
from tiny import EVERY, picture

pytestmark = pytest.mark.usefixtures("small_constants")

TWO_AND_ONE = [("What is it?", [picture(3, (72, 40)), IMAGES[0]]), ("Where?", IMAGES[1:])]
ENDS = {"hunyuan_vl": 2, "hy_v4_vl": 0}
"""The tokens that begin and end a picture."""
families = pytest.mark.parametrize("family", [family for family in ENDS if family in EVERY])
modes = pytest.mark.parametrize("mode", ["sparse", "saccade"])


@contextmanager
def patches_embedded(model: ARRCOCModel) -> Iterator[list[int]]:
    """How many patches each call of the vision tower begins with."""
    counts: list[int] = []
    layer = model.base.model.vision_tower.embeddings.patch_embedding
    hook = layer.register_forward_pre_hook(lambda _, given: counts.append(len(given[0])))
    try:
        yield counts
    finally:
        hook.remove()


def handed(prepared: Prepared) -> list[Tensor]:
    """The encoded tokens of each image; some releases of transformers take those of all in one."""
    tokens = prepared.compacted.kwargs["mm_encoder_outputs"]["image"].pooler_output
    return list(tokens) if isinstance(tokens, list) else list(tokens.flatten(0, 1).split(prepared.read))


@families
def test_only_the_kept_cells_are_encoded_and_all_newlines_stay(family: str) -> None:
    model, inputs = build(family), inputs_of(family, TWO_AND_ONE)
    with patches_embedded(model) as counts:
        prepared = prepared_for(model, inputs, "sparse")
    assert counts == [4 * 3 * 7]
    assert (prepared.mode, prepared.note, prepared.fallback) == ("sparse", None, False)
    rows = [5, 5, 9]
    assert prepared.read == [7 + height + ENDS[family] for height in rows]
    keep = [allocation.keep for allocation in prepared.allocations]
    with torch.no_grad():
        fine = model.adapter.encode_cells(inputs, keep)
    expected = model.adapter.assemble(inputs, model.adapter.layout(inputs), keep, fine, None)
    assert_same(prepared.compacted, expected)


@families
def test_a_coarse_view_is_of_cells_alone(family: str) -> None:
    model, inputs = build(family), inputs_of(family, [("Where?", IMAGES[1:])])
    with patches_embedded(model) as counts:
        prepared = prepared_for(model, inputs, "saccade")
    assert counts == [4 * 8, 4 * 7]
    assert prepared.read == [8 + 7 + 9 + ENDS[family]]
    assert (prepared.compacted.columns == GESTALT).sum() == 8
    with torch.no_grad():
        view = model.adapter.features(model.adapter.coarse(inputs, COARSE))
    assert same([handed(prepared)[0][:8]], [view.cell_tokens(0)])


@families
@modes
@torch.no_grad()
def test_with_every_cell_kept_it_is_the_stock_model(family: str, mode: str) -> None:
    model, inputs = build(family), inputs_of(family, [("Where?", IMAGES[:1])])
    prepared = prepared_for(model, inputs, mode, budget=1.0)
    assert prepared.mode == mode
    assert torch.equal(model.base(**prepared.compacted.kwargs).logits, model.base(**inputs).logits)
    text = model.base.generate(**inputs, max_new_tokens=5, do_sample=False)
    ours = model.generate(**inputs, mode=mode, budget=1.0, max_new_tokens=5, do_sample=False)
    assert torch.equal(ours, text)


@families
@torch.no_grad()
def test_dropping_is_masking(family: str) -> None:
    """On the whole prompt with the dropped columns masked, whatever stands in them."""
    model, inputs = build(family), inputs_of(family, TWO_AND_ONE)
    adapter, prepared = model.adapter, prepared_for(model, inputs, "sparse")
    columns = prepared.compacted.columns
    logits = model.base(**prepared.compacted.kwargs).logits
    layout, tokens = adapter.layout(inputs), []
    keep = layout.tokens_to_keep([allocation.keep for allocation in prepared.allocations])
    for count, kept, encoded in zip(layout.counts, keep, handed(prepared), strict=True):
        tokens.append(torch.randn(count, encoded.shape[1]).index_copy(0, kept, encoded))
    whole: VisualFeatures = replace(adapter.features(inputs), tokens=tokens)
    mask = torch.zeros_like(inputs["attention_mask"])
    for row, own in enumerate(columns):
        mask[row, own[own >= 0]] = 1
    text = {name: value for name, value in inputs.items() if name not in adapter.visual_names}
    expected = model.base(
        **text
        | {
            "attention_mask": mask,
            "position_ids": adapter.positions(inputs),
            "mm_encoder_outputs": whole.as_encoder_outputs(),
        }
    ).logits
    for row, own in enumerate(columns):
        there = own >= 0
        assert near(logits[row, there], expected[row, own[there]])


@families
@modes
@torch.no_grad()
def test_a_batch_is_its_rows_alone(family: str, mode: str) -> None:
    """Of unequal numbers of pictures and lengths, padded on the left."""
    model, rows = build(family), TWO_AND_ONE
    together = prepared_for(model, inputs_of(family, rows), mode)
    logits = model.base(**together.compacted.kwargs).logits
    for row, one in enumerate(rows):
        alone = prepared_for(model, inputs_of(family, [one]), mode)
        own = model.base(**alone.compacted.kwargs).logits[0]
        assert near(logits[row, -len(own) :], own)
    assert len(together.allocations) == 3
