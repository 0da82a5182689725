"""Whether pixels were normalised, and pictures back from both kinds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torchvision.transforms.functional import pil_to_tensor

from arr_coc.seam.pixels import are_normalised, undo_normalisation
from near import near
from tiny import picture

HALVES = (torch.full((3, 1, 1), 0.5), torch.full((3, 1, 1), 0.5))
CLIP = (
    torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1),
    torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1),
)
both = pytest.mark.parametrize(("mean", "std"), [HALVES, CLIP], ids=["halves", "clip"])


def pixels(seed: int = 1, low: int = 0) -> Tensor:
    """A picture of whole levels of at least `low`."""
    levels = pil_to_tensor(picture(seed)).float()
    return (low + levels * (255 - low) / 255).round() / 255


@both
class TestKinds:
    @pytest.mark.parametrize("low", [0, 128, 200])
    def test_normalised_pixels_are_undone(self, mean: Tensor, std: Tensor, low: int) -> None:
        """Also of pale pictures, whose normalised pixels may lie in [0, 1] like plain ones."""
        for seed in range(5):
            plain = pixels(seed, low)
            assert are_normalised([(plain - mean) / std], mean, std)
            (again,) = undo_normalisation([(plain - mean) / std], mean, std)
            assert near(again, plain)

    @pytest.mark.parametrize("low", [0, 128, 200])
    def test_plain_pixels_stay(self, mean: Tensor, std: Tensor, low: int) -> None:
        for seed in range(5):
            plain = pixels(seed, low)
            assert not are_normalised([plain], mean, std)
            assert torch.equal(undo_normalisation([plain], mean, std)[0], plain)

    def test_half_precision(self, mean: Tensor, std: Tensor) -> None:
        plain = pixels(2, 128)
        assert are_normalised([((plain - mean) / std).half().float()], mean, std)
        assert not are_normalised([plain.half().float()], mean, std)
        assert are_normalised([((plain - mean) / std).bfloat16().float()], mean, std)

    def test_what_pixels_leave_open_is_as_usual(self, mean: Tensor, std: Tensor) -> None:
        torch.manual_seed(0)
        between = torch.rand(3, 8, 8)  # no whole levels under either
        assert are_normalised([between], mean, std)
        assert not are_normalised([between], mean, std, usual=False)
        assert are_normalised([(pixels() - mean) / std], mean, std, usual=False)  # pixels below 0

    def test_one_picture_of_a_call_speaks_for_all(self, mean: Tensor, std: Tensor) -> None:
        pale, dark = torch.ones(3, 4, 4), pixels()
        assert are_normalised([(pale - mean) / std, (dark - mean) / std], mean, std)
        assert not are_normalised([pale, dark], mean, std)
