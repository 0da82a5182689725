"""ERNIE 4.5 VL: experts of its own for the tokens of pictures, and a resampler behind the tower."""

from __future__ import annotations

from typing import Any

from tiny_families import ids, mrope, qwen_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Ernie4_5_VLMoeConfig,
        Ernie4_5_VLMoeImageProcessor,
        Ernie4_5_VLMoeProcessor,
        Ernie4_5_VLMoeVideoProcessor,
    )

    layers = text(
        moe_intermediate_size=[16, 8],
        moe_num_experts=4,
        moe_k=2,
        moe_num_shared_experts=1,
        mlp_layer_types=["dense", "sparse"],
        rope_parameters=mrope(mrope_section=[1, 1, 2]),
        tie_word_embeddings=False,
    )
    tower = qwen_tower(temporal_merge_size=2)
    del tower["temporal_patch_size"], tower["out_hidden_size"]
    config = Ernie4_5_VLMoeConfig(
        text_config=layers,
        vision_config=tower,
        **ids(
            image_token_id="<|image|>",
            video_token_id="<|video_pad|>",
            image_start_token_id="<|begin_of_image|>",
            image_end_token_id="<|end_of_image|>",
            video_start_token_id="<|begin_of_video|>",
            video_end_token_id="<|end_of_video|>",
        ),
    )
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    pictures = Ernie4_5_VLMoeImageProcessor(patch_size=4, merge_size=2, size=sizes)
    tokens = words(
        image_token="<|image|>",
        image_start_token="<|begin_of_image|>",
        image_end_token="<|end_of_image|>",
        video_start_token="<|begin_of_video|>",
        video_end_token="<|end_of_video|>",
    )
    clips = Ernie4_5_VLMoeVideoProcessor(patch_size=4, merge_size=2, size=sizes)
    written = template(
        "<|begin_of_image|><|image|><|end_of_image|>", "<|begin_of_video|><|video_pad|><|end_of_video|>"
    )
    return config, Ernie4_5_VLMoeProcessor(pictures, tokens, clips, chat_template=written)
