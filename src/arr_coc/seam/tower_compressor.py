"""Compression inside the vision tower: its first blocks on local windows, fewer patches for the rest.

    tower4, tower16     2x2 or 4x4 patches become one after the first blocks; a token then covers 4 or 16
    cells

Attention over all patches is what a large picture costs, and most of a tower runs on what is left of them.
The order is DeepSeek-OCR's (Wei et al. 2025, arXiv 2510.18234): many patches in windows, then compression,
then global attention on few. There a tower of its own does the first part; here both are the model's own
blocks. What is learned is the merging, and a LoRA of the tower by the compressor's name (`lora.TOWERS`), so
that the upper blocks make of merged patches what they make of others. The language model stays as it is,
deepstack levels included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.choose.knowing import same_start
from arr_coc.seam.features import VisualFeatures
from arr_coc.seam.halves import usual_first
from arr_coc.seam.halvings import SIDES, Halvings

TOWERS = {"tower4": 4, "tower16": 16}
"""The compressors inside a tower by name, and how many cells become one token."""
WINDOW = 8
"""Cells along each side of a local window: 256 px of Qwen3-VL."""
WIDEST = 512
"""Most channels between the convolutions."""


class TowerCompressor(nn.Module):
    """A learned compressor inside a vision tower: the block average of patches plus a convolutional net's
    output.

    Args:
        dim: D, width of the tower's patches.
        factor: 4 or 16, how many patches become one.
        first: blocks of the tower before that, on local windows.
        window: cells along each side of these windows.

    Raises:
        ValueError: `factor` is neither.
    """

    def __init__(self, dim: int, factor: int, first: int, window: int = WINDOW) -> None:
        super().__init__()
        if factor not in SIDES:
            raise ValueError(f"factor {factor} is not one a compressor has; use one of {list(SIDES)}")
        if first < 1 or window < 1:
            raise ValueError(f"first is {first} and window {window}; use at least one block and one cell")
        self.dim, self.factor, self.first, self.window = dim, factor, first, window
        with same_start():
            self.norm = nn.LayerNorm(dim)
            self.net = Halvings(dim, min(dim, WIDEST), SIDES[factor] // 2)

    @classmethod
    def of(cls, tower: Any, factor: int) -> TowerCompressor:
        """An untrained compressor for a vision tower, on its device, after as many blocks as usual."""
        weight = tower.blocks[0].norm1.weight
        return cls(len(weight), factor, usual_first(tower)).to(weight.device)

    def forward(self, adapter: Any, inputs: Mapping[str, Any]) -> VisualFeatures:
        """Encode every image to coarse tokens.

        Args:
            adapter: a `FamilyAdapter` on the base model, or on its twin with the compressor's LoRA.
            inputs: ordinary processor inputs with images.

        Raises:
            NotImplementedError: the family's tower can't be run in two halves.
            ValueError: this compressor is for a tower of another width or depth.
        """
        return adapter.encode_merged(inputs, self)

    def merge(self, patches: Tensor, merge: int) -> Tensor:
        """Merge the patches of an image.

        Args:
            patches: [T, D, H * merge, W * merge], the patches of H x W cells.
            merge: patches along each side of a cell.

        Returns:
            [T, D, h * merge, w * merge], where h and w are H and W over the side of a block, rounded up:
            sides that don't divide are padded with copies of their edge, evenly on both ends.

        Raises:
            ValueError: patches of another width.
        """
        if patches.shape[1] != self.dim:
            raise ValueError(
                f"this compressor is for a vision tower of width {self.dim}, but this one has "
                f"{patches.shape[1]}; train one for this model or use 'resize'"
            )
        side = SIDES[self.factor]
        more = [-length % (side * merge) for length in (patches.shape[-1], patches.shape[-2])]
        edges = [amount for m in more for amount in (m // 2, m - m // 2)]
        x = F.pad(patches.to(self.norm.weight.dtype), edges, mode="replicate")
        even = self.norm(x.movedim(1, -1)).movedim(-1, 1)
        return (F.avg_pool2d(x, side) + self.net(even)).to(patches.dtype)
