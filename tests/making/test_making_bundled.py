"""The shape of the bundled model and its patches."""

from __future__ import annotations

import numpy as np
import torch

from arr_coc_lab.world import draw_page
from making import bundled


def test_patchify_is_the_processors_arithmetic(tokenizer):
    page = draw_page(2, (160, 96))
    image = torch.from_numpy(np.array(page.image)).permute(2, 0, 1).float() / 255
    processor = bundled.build_processor(tokenizer)
    batch = processor.image_processor(images=[page.image], return_tensors="pt")
    torch.testing.assert_close(bundled.patchify(image), batch["pixel_values"], atol=1e-6, rtol=0)
    assert batch["image_grid_thw"].tolist() == [[1, 6, 10]]


def test_still_images_are_embedded_as_ever(model):
    patches = torch.randn(8, 1, 3, 1, 256).expand(-1, -1, -1, 2, -1).reshape(8, 1536)
    embed = model.model.visual.patch_embed
    torch.testing.assert_close(bundled.StillPatchEmbed(embed)(patches), embed(patches), atol=1e-5, rtol=0)
