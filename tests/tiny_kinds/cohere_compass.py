"""Cohere Compass, from transformers 5.24 on: Qwen3-VL's tower; layers with windows, or without positions."""

from __future__ import annotations

from typing import Any

from tiny_families import HALVES, mrope, qwen_tower, template, text, words

MARKS = {
    "image_token": "<|IMAGE_PAD|>",
    "video_token": "<|VIDEO_PAD|>",
    "vision_start_token": "<|VISION_START|>",
    "vision_end_token": "<|VISION_END|>",
}


def make() -> tuple[Any, Any]:
    from transformers import (
        CohereCompassConfig,
        CohereCompassImageProcessor,
        CohereCompassProcessor,
        CohereCompassVideoProcessor,
    )

    tokens = words(**MARKS)
    layers = text(
        vocab_size=len(tokens),
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=4096,
        rope_parameters={"sliding_attention": mrope(mrope_interleaved=True), "full_attention": None},
        logit_scale=0.5,
    )
    image, clip, start, end = tokens.convert_tokens_to_ids(list(MARKS.values()))
    config = CohereCompassConfig(
        text_config=layers,
        vision_config=qwen_tower(deepstack_visual_indexes=[0, 1], num_position_embeddings=64),
        image_token_id=image,
        video_token_id=clip,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    cut = {"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2}
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    pictures = CohereCompassImageProcessor(size=sizes, **cut, **HALVES)
    image, clip = (f"<|VISION_START|>{MARKS[kind]}<|VISION_END|>" for kind in ("image_token", "video_token"))
    return config, CohereCompassProcessor(
        pictures, tokens, CohereCompassVideoProcessor(), chat_template=template(image, clip)
    )
