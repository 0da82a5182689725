"""Qwen2.5-Omni and Qwen3-Omni: their thinker, which reads images, clips and sound, and writes text.

Their images are those of Qwen2.5-VL and Qwen3-VL. Sound in a prompt stays whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from arr_coc.families.qwen2_5_vl import Qwen2_5VLAdapter
from arr_coc.families.qwen3_vl import Qwen3VLAdapter
from arr_coc.seam.misfits import REMEDY


class Thinker:
    """What both thinkers differ in from the families whose images they read."""

    model: Any
    remark = "wrap its `thinker`; sound always stays"
    clips = False

    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Rotary positions of images, clips and sound: [3, B, S]."""
        return omni_positions(self.model, inputs, attention_mask)


class Qwen2_5OmniAdapter(Thinker, Qwen2_5VLAdapter):
    """The thinker of Qwen2.5-Omni."""

    model_types = ("qwen2_5_omni_thinker",)
    title = "Qwen2.5-Omni"


class Qwen3OmniAdapter(Thinker, Qwen3VLAdapter):
    """The thinker of Qwen3-Omni."""

    model_types = ("qwen3_omni_moe_thinker",)
    title = "Qwen3-Omni"


def omni_positions(model: Any, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
    """Positions of a prompt: [3, B, S], whole numbers as floats.

    A thinker's own rule looks for images behind their begin tokens, and goes astray where an image was left
    out behind one. With images alone the rule is the grid of each image at the end of the text before it;
    with sound, which has a rule of its own, the thinker is asked.

    Raises:
        ValueError: image tokens stand in other numbers side by side than the images have.
    """
    ids, grids = inputs["input_ids"], inputs.get("image_grid_thw")
    sound = inputs.get("feature_attention_mask")
    lengths = inputs.get("audio_feature_lengths") if sound is None else sound.sum(-1)
    if lengths is not None or grids is None:
        owner = model if hasattr(model, "get_rope_index") else model.base_model
        return owner.get_rope_index(
            ids, image_grid_thw=grids, attention_mask=attention_mask, audio_seqlens=lengths
        )[0]
    merge = model.config.vision_config.spatial_merge_size
    sizes = iter((grids[:, 1:] // merge).tolist())
    image = ids == model.config.image_token_id
    positions = torch.zeros(3, *ids.shape, device=ids.device)
    for row, attended in enumerate(attention_mask.bool()):
        columns = attended.nonzero().flatten()
        runs = image[row, columns].unique_consecutive(return_counts=True)
        parts: list[Tensor] = []
        start = 0
        for visual, count in zip(*(values.tolist() for values in runs), strict=True):
            while visual and count:  # images may stand side by side
                height, width = next(sizes, (0, 0))
                if not 0 < height * width <= count:
                    raise ValueError(f"{count} image tokens of the prompt are those of no image; {REMEDY}")
                places = torch.cartesian_prod(torch.arange(1), torch.arange(height), torch.arange(width)).T
                parts.append(places + start)
                start += max(height, width)
                count -= height * width
            if count:
                parts.append((start + torch.arange(count)).expand(3, -1))
                start += count
        positions[:, row, columns] = torch.cat(parts, 1).to(positions)
    return positions
