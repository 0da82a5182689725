"""Whether images are foreign: unlike all that a model was taught on, by what a stem makes of them.

    foreign_images(adapter, stem, other, inputs, encoded) -> a bool per image; [] where nobody can say

The stem that chooses says so if it has learned it, with tokens that mode "sparse" reads, too (`stem_tokens`
makes them once); else another one that chooses nothing: an allocator that was trained for the bundled model
anew knows its world by the stem of the bundled allocator.
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
    adapter: FamilyAdapter,
    stem: Stem | None,
    other: Stem | None,
    inputs: Mapping[str, Any],
    encoded: EncodedImages,
) -> list[bool]:
    """Whether each image is foreign; [] without a stem that says so, or where its cells have no place.

    Args:
        adapter: of the model.
        stem: sees the cells that are chosen from.
        other: says it where `stem` doesn't; its tokens are not kept.
        inputs: processor inputs.
        encoded: of these images; what is missing is filled in.
    """
    own = stem is not None and stem.familiarity is not None
    eyes = stem if own else other
    if eyes is None or eyes.familiarity is None or not adapter.sparse:
        return []
    with torch.no_grad():
        views = (stem_tokens if own else tokens_of)(adapter, eyes, inputs, encoded)
        return [bool(eyes.familiarity(cells) > 0) for cells in views]


def stem_tokens(
    adapter: FamilyAdapter, stem: Stem, inputs: Mapping[str, Any], encoded: EncodedImages
) -> list[Tensor]:
    """Per image the cells [N, D] as the stem that chooses sees them in pixels alone; made once."""
    if None not in encoded.stems:
        encoded.stems[None] = tokens_of(adapter, stem, inputs, encoded)
    return encoded.stems[None]


def tokens_of(
    adapter: FamilyAdapter, stem: Stem, inputs: Mapping[str, Any], encoded: EncodedImages
) -> list[Tensor]:
    """Per image the cells [N, D] as any stem sees them in pixels alone."""
    views = zip(pictures(adapter, inputs, encoded), adapter.layout(inputs).grids, strict=True)
    return [stem(picture[None], grid[1:])[0] for picture, grid in views]
