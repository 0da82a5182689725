"""Optional inputs of `generate_texture_array` for tests: random ones that fit an image and a grid."""

from __future__ import annotations

from typing import Any

import torch

from arr_coc.choose.basis import Basis, fit_basis
from arr_coc.choose.texture import Channels, channel_groups

WIDTH = 24
"""Of features."""


def basis(seed: int = 0) -> Basis:
    """A basis of random features of width WIDTH."""
    return fit_basis(torch.randn(200, WIDTH, generator=torch.Generator().manual_seed(seed)))


def needed(channels: Channels, batch: int = 1, device: str = "cpu") -> dict[str, Any]:
    """What the groups of these channels need; symmetric, so that a mirrored image has the same."""
    needs = {need for group in channel_groups(channels) for need in group.needs}
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(batch, WIDTH, 3, 2, generator=generator)
    print_ = torch.rand(batch, 5, 4, generator=generator)
    inputs = {
        "text_evidence": ((print_ + print_.flip(-1)) / 2).to(device),
        "coarse_features": (features + features.flip(-1)).to(device),
        "basis": basis(),
    }
    return {name: value for name, value in inputs.items() if name in needs}


def clip_inputs(
    batch: int, size: tuple[int, int], grid: tuple[int, int], frames: int = 2
) -> dict[str, torch.Tensor]:
    """What a clip and earlier questions give: frames, relevance of each, maps of two questions."""
    generator = torch.Generator().manual_seed(2)
    return {
        "previous_frames": torch.rand(batch, frames, 3, *size, generator=generator),
        "relevance_history": torch.rand(batch, frames, *grid, generator=generator),
        "previous_relevance": torch.rand(batch, *grid, generator=generator),
        "attention_history": torch.rand(batch, 2, *grid, generator=generator),
    }
