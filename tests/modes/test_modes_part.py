"""Parts of the route before the encoder: gestalts without some images, gated tokens."""

from __future__ import annotations

import torch

from arr_coc.modes.route import gated, without
from arr_coc.seam import Layout, VisualFeatures
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
        keep = [torch.arange(6), torch.tensor([1, 3])]
        fine = gated(whole.select(keep), whole.layout, keep, gates)
        expected = torch.tensor([[11.0], [39.0]])
        assert same(fine.tokens, [whole.tokens[0], expected])
        assert same(fine.levels[0], [whole.levels[0][0], torch.tensor([[111.0], [339.0]])])

    def test_tokens_that_are_no_cell_are_not_gated(self) -> None:
        """Of five tokens the cells are those in the middle, in another order."""
        layout = Layout([5], [(1, 1, 3)], [torch.tensor([3, 1, 2])])
        keep, gates = [torch.tensor([0, 2])], [torch.tensor([0.5, 7.0, 0.25])]
        (indices,) = layout.tokens_to_keep(keep)
        fine = VisualFeatures([torch.ones(5, 1)[indices]], [], layout.grids, [], dict)
        (tokens,) = gated(fine, layout, keep, gates).tokens
        assert indices.tolist() == [0, 2, 3, 4]
        assert tokens.flatten().tolist() == [1.0, 0.25, 0.5, 1.0]
