"""GLM-GA: GLM-4.6V's model with its own processors of pictures and clips."""

from __future__ import annotations

from typing import Any

from tiny_families import GLM, glm_settings, words


def make() -> tuple[Any, Any]:
    from transformers import Glm46VProcessor, GlmgaConfig, GlmgaImageProcessor, GlmgaVideoProcessor

    cut = {"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2}
    sizes = {"shortest_edge": 16 * 16 * 2, "longest_edge": 96 * 96 * 2}
    pictures, clips = GlmgaImageProcessor(size=sizes, **cut), GlmgaVideoProcessor(size=sizes, **cut)
    tokens = words(image_token="<|image|>")
    return GlmgaConfig(**glm_settings()), Glm46VProcessor(pictures, tokens, clips, chat_template=GLM)
