"""Compaction on hand-worked numbers."""

from __future__ import annotations

import pytest
import torch

from arr_coc.seam import compact_columns, gather_columns, kept_columns
from arr_coc.seam.assembly import consecutive_positions, image_spans

I = True  # noqa: E741  an image column
o = False  # a text column


class TestImageSpans:
    def test_feature(self) -> None:
        is_image = torch.tensor(
            [[o, I, I, o, I, I, I, o], [o, o, o, o, o, o, o, o], [I, I, o, o, o, o, o, o]]
        )
        spans = image_spans(is_image, [2, 3, 2])
        assert [(row, columns.tolist()) for row, columns in spans] == [
            (0, [1, 2]),
            (0, [4, 5, 6]),
            (2, [0, 1]),
        ]

    def test_touching_images_are_told_apart_by_their_counts(self) -> None:
        spans = image_spans(torch.tensor([[I, I, I, I]]), [1, 3])
        assert [columns.tolist() for _, columns in spans] == [[0], [1, 2, 3]]

    @pytest.mark.parametrize("counts", [[2], [4], [2, 2], [3, 1], []])
    def test_exception(self, counts: list[int]) -> None:
        with pytest.raises(ValueError, match="3 image tokens"):
            image_spans(torch.tensor([[o, I, I, I]]), counts)

    def test_an_image_never_spans_two_rows(self) -> None:
        with pytest.raises(ValueError, match="image tokens"):
            image_spans(torch.tensor([[o, I, I], [I, o, o]]), [3])


class TestColumns:
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    spans = ((0, torch.tensor([1, 2, 3])), (1, torch.tensor([3, 4])))

    def test_feature(self) -> None:
        kept = kept_columns(self.mask, self.spans, [torch.tensor([1]), torch.tensor([1])])
        assert kept.int().tolist() == [[1, 0, 1, 0, 1, 1], [0, 0, 1, 0, 1, 1]]
        columns = compact_columns(kept)
        assert columns.tolist() == [[0, 2, 4, 5], [-1, 2, 4, 5]]
        assert compact_columns(kept, spare=1).tolist() == [[-1, 0, 2, 4, 5], [-1, -1, 2, 4, 5]]

    def test_everything_kept_is_the_identity(self) -> None:
        kept = kept_columns(self.mask, self.spans, [torch.arange(3), torch.arange(2)])
        assert torch.equal(kept, self.mask.bool())
        ids = torch.arange(12).view(2, 6) + 100
        columns = compact_columns(kept)
        assert torch.equal(gather_columns(ids, columns, fill=7)[0], ids[0])
        assert gather_columns(ids, columns, fill=7)[1].tolist() == [7, 7, 108, 109, 110, 111]

    def test_gather_keeps_leading_dimensions(self) -> None:
        values = torch.stack([torch.arange(12).view(2, 6), -torch.arange(12).view(2, 6)])
        columns = torch.tensor([[0, 5], [-1, 3]])
        assert gather_columns(values, columns, fill=50).tolist() == [
            [[0, 5], [50, 9]],
            [[0, -5], [50, -9]],
        ]

    def test_consecutive_positions(self) -> None:
        assert consecutive_positions(self.mask).tolist() == [[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3]]
