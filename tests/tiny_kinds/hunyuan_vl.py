"""Hunyuan VL and HunyuanOCR: four axes of positions, patches in raster order."""

from __future__ import annotations

from typing import Any

from tiny_families import WIDTH, ids, mrope, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import HunYuanVLConfig, HunYuanVLImageProcessor, HunYuanVLProcessor

    config = HunYuanVLConfig(
        text_config=text(rope_parameters=mrope(mrope_section=[1, 1, 1, 1]), tie_word_embeddings=False),
        vision_config=siglip_tower(out_hidden_size=WIDTH, spatial_merge_size=2, max_image_size=128),
        tie_word_embeddings=False,
        **ids(
            image_token_id="<|image|>",
            im_start_id="<|begin_of_image|>",
            im_end_id="<|end_of_image|>",
            im_newline_id="[IMG_BREAK]",
        ),
    )
    sizes = {"shortest_edge": 16 * 16, "longest_edge": 96 * 96}
    pictures = HunYuanVLImageProcessor(patch_size=4, merge_size=2, size=sizes)
    tokens = words(
        image_token="<|image|>", image_start_token="<|begin_of_image|>", image_end_token="<|end_of_image|>"
    )
    written = template("<|begin_of_image|><|image|><|end_of_image|>")
    return config, HunYuanVLProcessor(pictures, tokens, chat_template=written)
