"""Mode "sparse": cells are chosen from pixels, and those alone are encoded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from arr_coc.guide.trust import guide_remark, shares
from arr_coc.modes import scoring
from arr_coc.modes.call import EncodedImages
from arr_coc.modes.notes import joined
from eyes import (
    COARSE,
    assert_same,
    every_kind,
    inputs_of,
    patches_seen,
    prepared_for,
    sparse_families,
    wrapped,
)
from tiny import picture

pytestmark = pytest.mark.usefixtures("small_constants")


class TestSparse:
    @torch.no_grad()
    @every_kind
    @sparse_families
    def test_only_the_kept_cells_are_encoded(self, family: str, kind: str) -> None:
        model, inputs = wrapped(family, kind), inputs_of(family)
        with patches_seen(model) as seen:
            prepared = prepared_for(model, inputs, "sparse")
        # Of pictures of noise the guide may be lost, so that the model looks, too.
        unread = kind == "guide" and any(shares(one).not_found for one in prepared.couplings)
        coarse = (
            [4 * (2 * 3 + 4 * 2)] if unread or kind in ("gaze", "covering") else []
        )  # gestalts' own cells
        assert seen == [*coarse, 4 * (7 + 7)]
        notes = dict.fromkeys(map(guide_remark, prepared.couplings)) if kind == "guide" else ()
        assert (prepared.mode, prepared.note, prepared.fallback) == ("sparse", joined(*notes), False)
        assert prepared.read == [7, 7]
        keep = [allocation.keep for allocation in prepared.allocations]
        fine = model.adapter.encode_cells(inputs, keep)
        expected = model.adapter.assemble(inputs, model.adapter.layout(inputs), keep, fine, None)
        assert_same(prepared.compacted, expected)

    @every_kind
    def test_another_question_moves_the_relevance(self, kind: str) -> None:
        model, maps = wrapped(kind=kind), []
        for question in ("Where is the red ball?", "What?"):
            found = prepared_for(model, inputs_of(rows=[(question, [picture(3, (96, 96))])]), "sparse")
            maps.append(found.allocations[0].balanced)
        assert (maps[0] - maps[1]).abs().max() > 1e-3

    def test_nothing_but_pixels_and_question_decides_with_a_stem(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = wrapped()
        for name in ("coarse", "features"):
            monkeypatch.setattr(model.adapter, name, None)
        monkeypatch.setattr(scoring, "gaze", None)
        assert prepared_for(model, inputs_of(), "sparse").read == [7, 7]

    def test_what_the_stem_sees(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The exact pictures, and the gestalt under them where there is one."""
        model, inputs, calls = wrapped(), inputs_of(), []
        look = model.stem.forward

        def noted(*given: Any) -> Tensor:
            calls.append(given)
            return look(*given)

        monkeypatch.setattr(model.stem, "forward", noted)
        encoded = EncodedImages()
        prepared_for(model, inputs, "sparse", encoded=encoded)
        prepared_for(model, inputs, "saccade", encoded=encoded)
        assert [given[1] for given in calls] == [(5, 6), (9, 5)] * 2
        for i, given in enumerate(calls):
            assert torch.equal(given[0][0], model.adapter.images(inputs)[i % 2])
        coarse = model.adapter.features(model.adapter.coarse(inputs, COARSE))
        assert [len(given) for given in calls] == [2, 2, 3, 3]  # without a gestalt, and with
        for i, (_, _, under) in enumerate(calls[2:]):
            assert torch.equal(under[0].flatten(1).T, coarse.tokens[i])
            assert under.shape[-2:] == coarse.grids[i][1:]

    def test_auto_and_fractions(self) -> None:
        model, inputs = wrapped(), inputs_of()
        assert prepared_for(model, inputs, "sparse", budget=0.4).read == [12, 18]
        auto = prepared_for(model, inputs, "sparse", budget="auto")
        assert auto.read == [allocation.kept for allocation in auto.allocations]
        assert all(allocation.budget == "auto" for allocation in auto.allocations)
