"""Whether images are foreign: unlike all that a model's stem was taught on.

    foreign_images(adapter, stem, inputs, encoded) -> a bool per image; [] where nobody can say

`stem_tokens` makes what is read for it once; mode "sparse" reads the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from arr_coc.core.stem import Stem
from arr_coc.modes.call import EncodedImages
from arr_coc.modes.cues import pictures
from arr_coc.seam import FamilyAdapter


def foreign_images(
    adapter: FamilyAdapter, stem: Stem | None, inputs: Mapping[str, Any], encoded: EncodedImages
) -> list[bool]:
    """Whether each image is foreign; [] without a stem that says so, or where its cells have no place.

    Args:
        adapter: of the model.
        stem: sees the cells.
        inputs: processor inputs.
        encoded: of these images; what is missing is filled in.
    """
    if stem is None or stem.familiarity is None or not adapter.sparse:
        return []
    with torch.no_grad():
        return [bool(stem.familiarity(cells) > 0) for cells in stem_tokens(adapter, stem, inputs, encoded)]


def stem_tokens(
    adapter: FamilyAdapter, stem: Stem, inputs: Mapping[str, Any], encoded: EncodedImages
) -> list[Tensor]:
    """Per image the cells [N, D] as a stem sees them in pixels alone; made once."""
    if None not in encoded.stems:
        views = zip(pictures(adapter, inputs, encoded), adapter.layout(inputs).grids, strict=True)
        encoded.stems[None] = [stem(picture[None], grid[1:])[0] for picture, grid in views]
    return encoded.stems[None]
