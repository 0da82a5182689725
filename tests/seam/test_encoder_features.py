"""Features of coarse views: those of a model's own encoder."""

from __future__ import annotations

import pytest
import torch

from arr_coc.families import adapter_for
from arr_coc.seam.gestalt import coarse_features, compress, gestalt_features
from tiny import FAMILIES, picture, prompts, tiny


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_of_every_family_are_the_tokens_of_its_gestalt(family):
    built = tiny(family)
    adapter = adapter_for(built.model, built.processor)
    inputs = prompts(built, [("one", [picture(0, (96, 64))]), ("other", [picture(1)])])
    maps = coarse_features(adapter, inputs)
    gestalt = compress("resize" if adapter.encodes == "cells" else "pool4", adapter, inputs)
    assert len(maps) == 2
    for features, tokens, (_, h, w) in zip(maps, gestalt.tokens, gestalt.grids, strict=True):
        assert features.shape == (1, tokens.shape[1], h, w)
        assert torch.equal(features[0, :, 0, min(1, w - 1)], tokens[min(1, w - 1)])


def test_a_clip_is_refused():
    from test_gestalt import features

    with pytest.raises(ValueError, match="image 1 is a clip of 2 merged frames"):
        gestalt_features(features([(1, 2, 2), (2, 3, 9)]))
