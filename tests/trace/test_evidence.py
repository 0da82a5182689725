"""Evidence beside a choice, and what the guide says of itself."""

from __future__ import annotations

import pytest
import torch

from arr_coc.data.evidence import evidence_cells
from arr_coc.guide import coupling as coupling_module
from arr_coc.guide.coupling import couple, view
from arr_coc.guide.guide import Guide, prepared
from arr_coc.guide.trust import SENTENCES
from arr_coc.trace.evidence import Guidance, Spot, read_guidance, scaled, score
from records import record

SIZE = (64, 64)


class TestScore:
    def test_a_box_is_a_hit_if_all_of_its_cells_were_kept(self) -> None:
        allocation = record(8, 8, 12)
        kept, dropped = allocation.keep.tolist()[0], next(c for c in range(64) if c not in allocation.keep)
        boxes = [
            (8.0 * (c % 8), 8.0 * (c // 8), 8.0 * (c % 8) + 8, 8.0 * (c // 8) + 8) for c in (kept, dropped)
        ]
        scored = score(boxes, allocation, SIZE)
        assert scored.cells == ((kept,), (dropped,))
        assert scored.hits == (True, False)
        assert scored.recall == 0.5
        assert scored.text == "evidence: 1 of 2 cells kept (50%)"

    def test_the_cells_are_those_of_the_one_rule(self) -> None:
        boxes = ((1.0, 2.0, 30.0, 9.0), (40.0, 40.0, 41.0, 41.0))
        every = {cell for cells in score(boxes, record(8, 8, 12), SIZE).cells for cell in cells}
        assert every == set(evidence_cells(boxes, (8, 8), SIZE).flatten().nonzero().flatten().tolist())

    def test_no_evidence_has_no_recall(self) -> None:
        assert score((), record(8, 8, 12), SIZE).recall is None
        outside = score(((100.0, 100.0, 120.0, 120.0),), record(8, 8, 12), SIZE)
        assert (outside.recall, outside.hits, outside.text) == (None, (False,), "")

    def test_scaled(self) -> None:
        assert scaled([(1, 2, 3, 4)], (10, 10), (20, 5)) == ((2, 1, 6, 2),)


class TestGuidance:
    @pytest.mark.parametrize(
        ("numbers", "likeness", "says"),
        [
            ((0.9, 0.0, 0.0), 0.9, "sure"),
            ((0.9, 0.0, 0.0), 0.1, "sure"),
            ((0.4, 0.0, 0.0), 0.1, "nothing"),
            ((0.1, 0.0, 0.0), 0.9, "unsure"),
            ((0.1, 0.0, 0.0), 0.1, "nothing"),
            ((0.9, 0.9, 0.0), 0.9, "overview"),
            ((0.9, 0.0, 0.9), 0.9, "unusual"),
        ],
    )
    def test_says(self, numbers: tuple[float, float, float], likeness: float, says: str) -> None:
        spot = Spot("a", "a", likeness, (0.5, 0.5), torch.zeros(2, 2))
        assert Guidance(*numbers, (spot,)).says == says
        assert SENTENCES[says] in Guidance(*numbers, (spot,)).sentence

    def test_words_and_where_they_match(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(coupling_module, "ENLARGED", 1.0)  # so that places end where cells do
        torch.manual_seed(0)
        guide = prepared(Guide(), torch.float32)
        page = view(guide, torch.rand(3, 96, 160))
        question = "Who is the seller of the red car?"
        coupling = couple(guide, page, question, (3, 5))
        guidance = read_guidance(guide, page, question, coupling, (3, 5))
        assert [spot.word for spot in guidance.spots] == ["seller", "red", "car"]
        for spot in guidance.spots:
            y, x = (int(share * cells) for share, cells in zip(spot.place, (3, 5), strict=True))
            assert spot.heat.shape == (3, 5)
            assert float(spot.heat.max()) == pytest.approx(spot.likeness, abs=1e-5)
            assert float(spot.heat[y, x]) == pytest.approx(spot.likeness, abs=1e-5)
        assert guidance.confidence == coupling.confidence
