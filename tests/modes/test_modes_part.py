"""Parts of the route before the encoder: gestalts without some images, gated tokens.

Run: pytest tests/test_modes_part.py
"""

from __future__ import annotations

import torch

from arr_coc.modes.part import gated, without
from arr_coc.seam import VisualFeatures
from eyes import same


class TestParts:
    @staticmethod
    def features() -> VisualFeatures:
        grids = [(1, 2, 3), (1, 1, 4)]
        tokens = [torch.arange(6.0)[:, None], 10 + torch.arange(4.0)[:, None]]
        levels = [[100 + image for image in tokens]]
        return VisualFeatures(tokens, levels, grids, [torch.arange(6), torch.arange(4)], dict)

    def test_without(self) -> None:
        whole = self.features()
        assert without(whole, [False, False]) is whole
        left = without(whole, [True, False])
        assert left.counts == [0, 4]
        assert [len(image) for image in left.levels[0]] == [0, 4]
        assert torch.equal(left.cell_tokens(1), whole.tokens[1])
        assert left.cell_tokens(0).shape == (0, 1)
        assert whole.counts == [6, 4]

    def test_gated(self) -> None:
        whole, gates = self.features(), [torch.ones(6), torch.tensor([0.0, 1.0, 2.0, 3.0])]
        found = gated(whole, gates)
        assert same(found.tokens, [whole.tokens[0], whole.tokens[1] * gates[1][:, None]])
        assert same(found.levels[0], [whole.levels[0][0], whole.levels[0][1] * gates[1][:, None]])
