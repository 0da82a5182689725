"""Mode "compress": the coarse view of an image alone."""

from __future__ import annotations

import pytest
import torch

from arr_coc.seam import gestalt
from eyes import (
    COARSE,
    assert_same,
    build,
    inputs_of,
    llava_families,
    patches_seen,
    prepared_for,
    sparse_families,
    wrapped,
)

pytestmark = pytest.mark.usefixtures("small_constants")


class TestCompress:
    @torch.no_grad()
    @sparse_families
    def test_the_coarse_view_alone(self, family: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        with patches_seen(model) as seen:
            prepared = prepared_for(model, inputs, "compress")
        assert seen == [4 * (6 + 8)]
        assert prepared.read == [6, 8]
        adapter, none = model.adapter, [torch.tensor([], dtype=torch.long)] * 2
        coarse = adapter.features(adapter.coarse(inputs, COARSE))
        expected = adapter.assemble(inputs, adapter.layout(inputs), none, None, coarse)
        assert_same(prepared.compacted, expected)

    @torch.no_grad()
    @llava_families
    def test_tokens_that_are_no_cell_stay(self, family: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        features = model.adapter.features(inputs)
        others = [n - len(cells) for n, cells in zip(features.counts, features.cells, strict=True)]
        coarse = gestalt.pooled(features, 4)
        prepared = prepared_for(model, inputs, "compress")
        assert prepared.read == [few + more for few, more in zip(coarse.counts, others, strict=True)]
        handed = prepared.compacted.kwargs["mm_encoder_outputs"]["image"].pooler_output
        for image, tokens in enumerate(coarse.tokens):
            assert torch.equal(handed[image][: len(tokens)], tokens)

    def test_nothing_is_scored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = build("qwen3_vl", "stem")
        for part in (model.layer, model.stem):
            monkeypatch.setattr(part, "forward", None)
        monkeypatch.setattr(model.layer, "scores", None)
        assert prepared_for(model, inputs_of(), "compress").read == [6, 8]
