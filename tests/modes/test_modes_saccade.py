"""Mode "saccade": a coarse view of the whole image, and fine cells where the question points."""

from __future__ import annotations

import pytest
import torch

from arr_coc.choose.allocation import Reason
from arr_coc.modes import route
from arr_coc.modes.route import saccades
from arr_coc.seam import GESTALT
from eyes import (
    COARSE,
    ROWS,
    TOTAL,
    assert_same,
    build,
    every_kind,
    inputs_of,
    patches_seen,
    prepared_for,
    sparse_families,
    wrapped,
)
from near import near
from tiny import picture

pytestmark = pytest.mark.usefixtures("small_constants")


class TestSaccade:
    @torch.no_grad()
    @every_kind
    @sparse_families
    def test_the_coarse_view_and_then_the_kept_cells(self, family: str, kind: str) -> None:
        model, inputs = wrapped(family, kind), inputs_of(family, ROWS[1:])
        with patches_seen(model) as seen:
            prepared = prepared_for(model, inputs, "saccade", budget=7)
        assert seen == [4 * 8, 4 * 7]
        assert (prepared.read, prepared.allocations[0].kept) == ([15], 7)
        adapter, keep = model.adapter, [prepared.allocations[0].keep]
        coarse = adapter.features(adapter.coarse(inputs, COARSE))
        fine = adapter.encode_cells(inputs, keep)
        assert_same(prepared.compacted, adapter.assemble(inputs, adapter.layout(inputs), keep, fine, coarse))

    @every_kind
    def test_budget_is_the_number_of_saccades(self, kind: str) -> None:
        model, inputs = wrapped(kind=kind), inputs_of()
        for budget, kept in ((3, [30, 3]), (0.2, [30, 9]), (1.0, [30, 45])):
            prepared = prepared_for(model, inputs, "saccade", budget=budget)
            assert [allocation.kept for allocation in prepared.allocations] == kept
            assert prepared.read == [kept[0], 8 + kept[1]]

    @every_kind
    @sparse_families
    def test_in_all_so_many_tokens_whatever_the_image(self, family: str, kind: str) -> None:
        """But no more than the image has; then there is no gestalt."""
        sizes = [(48, 40), (40, 72), (96, 96), (192, 16), (8, 400), (64, 40)]
        totals = [30, 45, 144, 48, 50, 40]
        model = build(family, kind, budget=None)
        rows = [("What?", [picture(i, size) for i, size in enumerate(sizes)])]
        prepared = prepared_for(model, inputs_of(family, rows), "saccade")
        assert [allocation.total for allocation in prepared.allocations] == totals
        assert prepared.read == [min(TOTAL, total) for total in totals]
        coarse = [read - a.kept for read, a in zip(prepared.read, prepared.allocations, strict=True)]
        assert [count > 0 for count in coarse] == [total > TOTAL for total in totals]
        assert max(coarse) <= COARSE

    @torch.no_grad()
    @sparse_families
    def test_a_small_image_beside_a_large_one_keeps_its_cells(self, family: str) -> None:
        model, inputs = wrapped(family), inputs_of(family)
        prepared = prepared_for(model, inputs, "saccade", budget=7)
        small, large = prepared.allocations
        assert (small.reasons == Reason.ALL).all()
        assert (large.reasons != Reason.ALL).all()
        columns = prepared.compacted.columns
        assert (columns == GESTALT).sum(1).tolist() == [0, 8]
        own = columns[0][columns[0] >= 0]
        assert own.tolist() == inputs["attention_mask"][0].nonzero().flatten().tolist()
        handed = prepared.compacted.kwargs["mm_encoder_outputs"]["image"].pooler_output
        stock = model.adapter.features(inputs).tokens
        assert near(handed[0], stock[0])

    @every_kind
    def test_small_images_are_neither_scored_nor_looked_at_coarsely(
        self, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, inputs = wrapped(kind=kind), inputs_of(rows=ROWS[:1])
        monkeypatch.setattr(model.layer, "scores", None)
        with patches_seen(model) as seen:
            prepared = prepared_for(model, inputs, "saccade")
        assert prepared.read == [30]
        assert seen == [4 * 30]

    def test_a_gestalt_that_leaves_no_room_for_saccades_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Never more tokens than promised, and never a silent fallback to all of them."""
        model, inputs = (
            build("qwen3_vl", "stem", budget=None),
            inputs_of(rows=[("?", [picture(1, (96, 96))])]),
        )
        monkeypatch.setattr(route, "SACCADE_TOKENS", 36)
        assert prepared_for(model, inputs, "saccade", gestalt="pool16").read == [36]
        with pytest.raises(ValueError, match=r"makes 36 tokens of an image of 144 cells"):
            prepared_for(model, inputs, "saccade", gestalt="pool4")
        assert prepared_for(model, inputs, "saccade", gestalt="pool4", budget=5).read == [36 + 5]

    def test_other_gestalts(self) -> None:
        model, inputs = wrapped(), inputs_of()
        for name, coarse in (("pool4", 15), ("pool16", 6)):
            prepared = prepared_for(model, inputs, "saccade", gestalt=name, budget=5)
            assert prepared.read == [30, coarse + 5]


def test_saccades() -> None:
    assert saccades(1000, 0, None) is None
    assert saccades(1000, 9, None) == TOTAL - 9
    assert saccades(1000, 9, lambda cells: cells // 100) == 10
    assert saccades(30, 0, lambda _: 5) is None
