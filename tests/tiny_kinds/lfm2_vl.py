"""LFM2-VL: tiles and a view of the whole in its own shape, before a language model with convolutions."""

from __future__ import annotations

from typing import Any

from tiny_families import ids, siglip_tower, template, text, words


def make() -> tuple[Any, Any]:
    from transformers import (
        Lfm2Config,
        Lfm2VlConfig,
        Lfm2VlImageProcessor,
        Lfm2VlProcessor,
        Siglip2VisionConfig,
    )

    marks = {"image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>"}
    tokens = words(image_token="<image>", **marks)
    tiles = [f"<|img_row_{row + 1}_col_{column + 1}|>" for row in range(4) for column in range(4)]
    tokens.add_special_tokens(
        {"additional_special_tokens": ["<|img_thumbnail|>", *tiles]}, replace_extra_special_tokens=False
    )
    layers = text(
        vocab_size=len(tokens),
        num_hidden_layers=3,
        layer_types=["conv", "full_attention", "conv"],
        block_auto_adjust_ff_dim=False,
    )
    del layers["head_dim"]
    tower = siglip_tower(num_patches=36, vision_use_head=False)
    config = Lfm2VlConfig(
        text_config=Lfm2Config(**layers),
        vision_config=Siglip2VisionConfig(**tower),
        projector_hidden_size=32,
        tie_word_embeddings=False,
        **ids(image_token_id="<image>"),
    )
    pictures = Lfm2VlImageProcessor(
        encoder_patch_size=4,
        tile_size=32,
        min_image_tokens=9,
        max_image_tokens=36,
        max_tiles=4,
        max_pixels_tolerance=1.0,
    )
    return config, Lfm2VlProcessor(pictures, tokens, chat_template=template("<image>"))
