"""Qwen2.5-Omni and Qwen3-Omni: their thinker, which reads images, clips and sound, and writes text.

Their images are those of Qwen2.5-VL and Qwen3-VL. Sound in a prompt stays whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from arr_coc.seam.families.qwen2_5_vl import Qwen2_5VLAdapter
from arr_coc.seam.families.qwen3_vl import Qwen3VLAdapter


class Qwen2_5OmniAdapter(Qwen2_5VLAdapter):
    """The thinker of Qwen2.5-Omni."""

    model_types = ("qwen2_5_omni_thinker",)
    clips = False

    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Rotary positions of images, clips and sound: [3, B, S]."""
        return omni_positions(self.model, inputs, attention_mask)


class Qwen3OmniAdapter(Qwen3VLAdapter):
    """The thinker of Qwen3-Omni."""

    model_types = ("qwen3_omni_moe_thinker",)
    clips = False

    def prompt_positions(self, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
        """Rotary positions of images, clips and sound: [3, B, S]."""
        return omni_positions(self.model, inputs, attention_mask)


def omni_positions(model: Any, inputs: Mapping[str, Any], attention_mask: Tensor) -> Tensor:
    """Positions that a thinker computes of a prompt: [3, B, S]."""
    owner = model if hasattr(model, "get_rope_index") else model.base_model
    sound = inputs.get("feature_attention_mask")
    positions, _ = owner.get_rope_index(
        inputs["input_ids"],
        image_grid_thw=inputs.get("image_grid_thw"),
        attention_mask=attention_mask,
        use_audio_in_video=False,
        audio_seqlens=inputs.get("audio_feature_lengths") if sound is None else sound.sum(-1),
    )
    return positions
